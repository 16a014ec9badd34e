use chrono::{DateTime, Utc};
use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::kernel::{Sha256Hex, UserId, WebhookId};

/// How a document is to be read, in the words that clients use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractionOptions {
    /// `markdown`, `json` or `plaintext`.
    pub output_format: String,
    /// Who reads it.
    pub engine: String,
    /// Who recognises text in pictures.
    pub ocr_engine: String,
    /// ISO 639-3 code of the text's language.
    pub language: String,
    /// What is done with the text, in this order.
    pub processors: Vec<String>,
    /// Whether markdown begins with what is known of the document.
    pub front_matter: bool,
}

/// Who is told of the end of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Callback {
    /// Stands for a subscription; equal for all addresses of a host.
    pub receiver: WebhookId,
    /// Where it is posted to.
    pub url: String,
    /// Signs it; encrypted for the receiver.
    pub sealed_secret: String,
}

/// A document that is to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewExtractionJob {
    /// Whose it is; nobody's if it was sent without a login.
    pub owner: Option<UserId>,
    /// What the file was called.
    pub filename: String,
    /// In bytes.
    pub size: u64,
    /// Of the document.
    pub sha256: Sha256Hex,
    /// Names the document in the blob store.
    pub input: Uuid,
    /// How it is to be read.
    pub options: ExtractionOptions,
    /// Who is told of its end.
    pub callback: Option<Callback>,
}

/// What a document gave, without its text, which is in the blob store under the claim's key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExtractionResult {
    /// What the bytes are.
    pub mime_type: String,
    /// Of the text, in bytes.
    pub size: u64,
    /// Of the text.
    pub sha256: Sha256Hex,
    /// Who read it.
    pub extractor_used: String,
    /// Who recognised text in pictures; none if nobody had to.
    pub ocr_engine_used: Option<String>,
    /// None for what has no pages.
    pub page_count: Option<u32>,
    /// How sure all of it is, 0 to 1.
    pub confidence: f32,
    /// Whether the same document had been read before, and this is what it gave then.
    pub cached: bool,
    /// From the beginning of the attempt.
    pub milliseconds: u64,
}

/// Why there is no text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtractionFailure {
    /// Stable word.
    pub code: String,
    /// What happened, why, and what to do; nothing of the document.
    pub message: String,
}

/// What can be asked of a job.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ExtractionJobCommand {
    /// Take the document in.
    Submit(NewExtractionJob),
    /// Claim it for one worker: it waits, or its worker has not been heard of for [`super::LEASE_SECONDS`].
    Begin {
        /// Names the claim; only who knows it may say what came of the attempt.
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
        /// Of how many; none while that is not known.
        page_count: Option<u32>,
    },
    /// The text is there.
    Complete {
        /// The claim.
        claim: Uuid,
        /// What came of it.
        result: ExtractionResult,
    },
    /// The document gives no text.
    Fail {
        /// The claim.
        claim: Uuid,
        /// Why.
        failure: ExtractionFailure,
    },
    /// The attempt ended and says nothing of the document. It is read again later, unless that was the last attempt.
    Release {
        /// The claim.
        claim: Uuid,
        /// When the next attempt may begin.
        due_at: DateTime<Utc>,
        /// What happened.
        failure: ExtractionFailure,
    },
    /// The worker stops and has not read it: it waits again, as if it had not been begun.
    GiveBack {
        /// The claim.
        claim: Uuid,
    },
    /// End it if its last attempt's worker has not been heard of any more.
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
}

/// What can have happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExtractionJobEvent {
    /// A document waits to be read.
    ExtractionSubmitted(NewExtractionJob),
    /// A worker has claimed it.
    ExtractionBegun {
        /// Names the claim.
        claim: Uuid,
        /// When; it lapses [`super::LEASE_SECONDS`] later unless the worker is heard of.
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
        /// What came of it.
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
        /// What happened.
        failure: ExtractionFailure,
    },
    /// It waits again, as if it had not been begun.
    ExtractionGivenBack {
        /// The claim that has ended.
        claim: Uuid,
    },
    /// Nobody wants it any more.
    ExtractionCancelled,
    /// It waits again.
    ExtractionRetried,
    /// The document is not kept any more.
    ExtractionInputRemoved,
    /// The text is not kept any more.
    ExtractionResultExpired,
}

impl DomainEvent for ExtractionJobEvent {
    fn event_type(&self) -> String {
        match self {
            Self::ExtractionSubmitted(_) => "extraction_submitted",
            Self::ExtractionBegun { .. } => "extraction_begun",
            Self::ExtractionAdvanced { .. } => "extraction_advanced",
            Self::ExtractionCompleted { .. } => "extraction_completed",
            Self::ExtractionFailed { .. } => "extraction_failed",
            Self::ExtractionReleased { .. } => "extraction_released",
            Self::ExtractionGivenBack { .. } => "extraction_given_back",
            Self::ExtractionCancelled => "extraction_cancelled",
            Self::ExtractionRetried => "extraction_retried",
            Self::ExtractionInputRemoved => "extraction_input_removed",
            Self::ExtractionResultExpired => "extraction_result_expired",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}
