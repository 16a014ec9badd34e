use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::kernel::{Sha256Hex, UserId, WebhookId, event_kinds};

/// How a document is to be read, in the words that clients use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractionOptions {
    /// `markdown`, `json` or `plaintext`.
    pub output_format: String,
    /// The engine that reads the document.
    pub engine: String,
    /// The engine that recognises text in images.
    pub ocr_engine: String,
    /// ISO 639-3 code of the text's language.
    pub language: String,
    /// The processors applied to the text, in this order.
    pub processors: Vec<String>,
    /// Whether Markdown starts with the document's metadata.
    pub front_matter: bool,
    /// Whether the blocks of JSON have their words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub words: bool,
    /// Whether JSON has the document in chunks, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub chunks: bool,
    /// The most words of a chunk; absent for the usual number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk_words: Option<u32>,
    /// Whether the document is kept as long as its text.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_input: bool,
    /// Whether the text is kept until its owner deletes it, and can be searched.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
}

/// The receiver of a notification when a job finishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// Stands for a subscription; equal for all addresses of a host.
    pub receiver: WebhookId,
    /// Where it is posted to.
    pub url: String,
    /// Signs it; encrypted for the receiver.
    pub sealed_secret: String,
    /// Whether this machine's own address is refused, because the caller had no login and was not on this machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_loopback: bool,
}

/// A document that is to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewExtractionJob {
    /// Absent for a job that was submitted without a login.
    pub owner: Option<UserId>,
    /// Name of the uploaded file.
    pub filename: String,
    /// In bytes.
    pub size: u64,
    /// Of the document.
    pub sha256: Sha256Hex,
    /// Names the document in the blob store.
    pub input: Uuid,
    /// How it is to be read.
    pub options: ExtractionOptions,
    pub callback: Option<Callback>,
}

/// The result of an extraction without its text, which is in the blob store under the claim's key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtractionResult {
    /// Detected type of the bytes.
    pub mime_type: String,
    /// Of the text, in bytes.
    pub size: u64,
    /// Of the text.
    pub sha256: Sha256Hex,
    /// The engine that read the document.
    pub extractor_used: String,
    /// The engine that recognised text in images; absent if none was needed.
    pub ocr_engine_used: Option<String>,
    /// Absent for documents without pages.
    pub page_count: Option<u32>,
    /// How sure all of it is, 0 to 1.
    pub confidence: f32,
    /// Whether the result is from the cache, because the same document had been read before.
    pub cached: bool,
    /// From the beginning of the attempt.
    pub milliseconds: u64,
    /// Sentences on what could not be done; see [`bounded_warnings`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// Sentences of an event, and characters of one, at most.
const MAX_WARNINGS: usize = 20;
const MAX_WARNING: usize = 300;

/// `warnings` as an event holds them: a book may have one for each of its pages.
pub fn bounded_warnings(warnings: &[String]) -> Vec<String> {
    let mut bounded: Vec<String> = warnings
        .iter()
        .take(MAX_WARNINGS)
        .map(|warning| warning.chars().take(MAX_WARNING).collect())
        .collect();
    if warnings.len() > MAX_WARNINGS {
        let others = warnings.len() - MAX_WARNINGS + 1;
        bounded[MAX_WARNINGS - 1] = format!("{others} others like these");
    }
    bounded
}

/// Why there is no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractionFailure {
    /// Stable word.
    pub code: String,
    /// States what happened, why, and what to do. Never quotes the document.
    pub message: String,
}

/// Codes of failures that are not the document's; the others are those of its reader.
impl ExtractionFailure {
    /// All of them.
    pub const OWN_CODES: [&str; 4] =
        [Self::UNKNOWN_OPTION, Self::INPUT_MISSING, Self::STORAGE, Self::WORKER_LOST];
    /// The job has an option that this version does not know.
    pub const UNKNOWN_OPTION: &str = "unknown_option";
    /// The document is not kept any more.
    pub const INPUT_MISSING: &str = "input_missing";
    /// The document cannot be read where it is kept, or the text cannot be stored.
    pub const STORAGE: &str = "storage";
    /// Each worker that began the document was gone before its end.
    pub const WORKER_LOST: &str = "worker_lost";
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ExtractionJobCommand {
    /// Take the document in.
    Submit(NewExtractionJob),
    /// Claim it for one worker: it is queued, or its worker has sent no heartbeat for [`super::LEASE_SECONDS`].
    Begin {
        /// Names the claim; required to report the attempt's result.
        claim: Uuid,
        /// Now.
        at: DateTime<Utc>,
    },
    /// The worker lives, and is so far.
    Advance {
        /// The claim.
        claim: Uuid,
        /// Now.
        at: DateTime<Utc>,
        /// Pages that are done.
        pages_done: u32,
        /// Total number of pages; absent while it is unknown.
        page_count: Option<u32>,
    },
    /// The text is there.
    Complete {
        /// The claim.
        claim: Uuid,
        result: ExtractionResult,
    },
    /// The document gives no text.
    Fail {
        /// The claim.
        claim: Uuid,
        /// Why.
        failure: ExtractionFailure,
    },
    /// The attempt ended for a reason that does not lie in the document. It is read again later, unless that was the
    /// last attempt.
    Release {
        /// The claim.
        claim: Uuid,
        /// When the next attempt may begin.
        due_at: DateTime<Utc>,
        failure: ExtractionFailure,
    },
    /// The worker stops before it has read the document: it is queued again, and the attempt does not count.
    GiveBack {
        /// The claim.
        claim: Uuid,
    },
    /// Fail it if the worker of its last attempt sends no heartbeat any more.
    GiveUp {
        /// Now.
        at: DateTime<Utc>,
    },
    /// End it, unless it has ended.
    Cancel,
    /// Read a document again that gave no text.
    Retry,
    /// The document has been removed from the blob store.
    RecordInputRemoved,
    /// The text has been removed from the blob store.
    RecordResultExpired,
    /// Delete a text that is kept.
    Discard,
    /// Its owner wants to see it no more.
    Delete,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExtractionJobEvent {
    /// A document waits to be read.
    ExtractionSubmitted(NewExtractionJob),
    /// A worker has claimed it.
    ExtractionBegun {
        /// Names the claim.
        claim: Uuid,
        /// The claim expires [`super::LEASE_SECONDS`] later unless the worker sends a heartbeat.
        at: DateTime<Utc>,
        /// From 1.
        attempt: u32,
    },
    /// The worker lives, and is so far.
    ExtractionAdvanced {
        /// The claim.
        claim: Uuid,
        /// When.
        at: DateTime<Utc>,
        /// Pages that are done.
        pages_done: u32,
        /// Of how many.
        page_count: Option<u32>,
    },
    /// The text is there.
    ExtractionCompleted {
        /// The claim.
        claim: Uuid,
        result: ExtractionResult,
    },
    /// The document gives no text.
    ExtractionFailed {
        /// Why.
        failure: ExtractionFailure,
    },
    /// It waits for another attempt.
    ExtractionReleased {
        /// The claim that has ended.
        claim: Uuid,
        /// When the next attempt may begin.
        due_at: DateTime<Utc>,
        failure: ExtractionFailure,
    },
    /// It is queued again, and the attempt does not count.
    ExtractionGivenBack {
        /// The claim that has ended.
        claim: Uuid,
    },
    /// The job was cancelled.
    ExtractionCancelled,
    /// It waits again.
    ExtractionRetried,
    /// The document is not kept any more.
    ExtractionInputRemoved,
    /// The text is not kept any more.
    ExtractionResultExpired,
    /// A text that was kept is not shown or found any more; its files are removed after this.
    ExtractionDiscarded,
    /// The job is not shown any more; its files are removed after this.
    ExtractionDeleted,
}

event_kinds!(ExtractionJobEvent, ExtractionJobEventKind {
    ExtractionSubmitted = "extraction_submitted", "1";
    ExtractionBegun = "extraction_begun", "1";
    ExtractionAdvanced = "extraction_advanced", "1";
    ExtractionCompleted = "extraction_completed", "1";
    ExtractionFailed = "extraction_failed", "1";
    ExtractionReleased = "extraction_released", "1";
    ExtractionGivenBack = "extraction_given_back", "1";
    ExtractionCancelled = "extraction_cancelled", "1";
    ExtractionRetried = "extraction_retried", "1";
    ExtractionInputRemoved = "extraction_input_removed", "1";
    ExtractionResultExpired = "extraction_result_expired", "1";
    ExtractionDiscarded = "extraction_discarded", "1";
    ExtractionDeleted = "extraction_deleted", "1";
});
