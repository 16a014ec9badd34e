use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use signalbox_domain::{
    extraction::{
        ExtractionFailure, ExtractionJobEvent, ExtractionOptions, ExtractionResult, ExtractionStatus,
        LEASE_SECONDS, NewExtractionJob,
    },
    kernel::{ExtractionJobId, UserId},
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::{
    Word,
    table::{ReadRow, Table},
};

/// A document that is read in the background.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct ExtractionJobRow {
    /// Key.
    pub id: ExtractionJobId,
    /// Absent for a job that was submitted without a login.
    pub owner_id: Option<UserId>,
    pub filename: String,
    /// In bytes.
    pub size: i64,
    /// Of the document.
    pub sha256: String,
    /// Names the document in the blob store.
    pub input_id: Uuid,
    /// How it is read.
    pub options: Json<ExtractionOptions>,
    /// Address that is notified when the job finishes.
    pub callback_url: Option<String>,
    pub status: Word<ExtractionStatus>,
    /// Attempts that have begun.
    pub attempts: i32,
    /// When a worker may begin it: after this time it waits, or has lost its worker. None when it has ended.
    pub due_at: Option<DateTime<Utc>>,
    /// The claim in force.
    pub claim: Option<Uuid>,
    /// All claims that there were; each may have left a text in the blob store.
    pub claims: Vec<Uuid>,
    /// Pages that are done.
    pub pages_done: i32,
    /// Total number of pages; absent while it is unknown, and for documents without pages.
    pub page_count: Option<i32>,
    /// Absent until the file has been read.
    pub mime_type: Option<String>,
    /// Why it failed, or why it waits for another attempt.
    pub error: Option<String>,
    /// Stable word for that.
    pub error_code: Option<String>,
    /// Names the text in the blob store.
    pub result_id: Option<Uuid>,
    /// Of the text, in bytes.
    pub result_size: Option<i64>,
    /// The engine that read the document.
    pub extractor_used: Option<String>,
    /// The engine that recognised text in images.
    pub ocr_engine_used: Option<String>,
    /// How sure the text is, 0 to 1.
    pub confidence: Option<f32>,
    /// Whether the text is that of an earlier reading.
    pub cached: bool,
    /// How long the last attempt took.
    pub milliseconds: Option<i64>,
    /// Sentences on what could not be done.
    pub warnings: Vec<String>,
    /// Whether the document is in the blob store.
    pub input_kept: bool,
    /// Whether the text is, until results expire; false of a text that is `kept`.
    pub result_kept: bool,
    /// Whether the text is kept until its owner deletes it, and can be searched.
    pub kept: bool,
    /// Whether its owner has deleted it and its files have not been removed yet.
    pub discarded: bool,
    /// Whether its owner has deleted the job: it is shown only as of a moment before.
    pub deleted: bool,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was submitted.
    pub created_at: DateTime<Utc>,
    /// When the last attempt began.
    pub started_at: Option<DateTime<Utc>>,
    /// When it completed, failed or was cancelled.
    pub ended_at: Option<DateTime<Utc>>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for ExtractionJobRow {
    const TABLE: &'static str = "extraction_jobs";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

pub(super) fn fold(rows: &mut Table<ExtractionJobRow>, recorded: &RecordedEvent, event: ExtractionJobEvent) {
    if let ExtractionJobEvent::ExtractionSubmitted(new) = event {
        return rows.put(ExtractionJobRow::new(recorded, new));
    }
    let Some(row) = rows.change(recorded.aggregate_id) else { return };
    let at = recorded.recorded_at;
    row.version = recorded.sequence;
    row.updated_at = at;
    match event {
        ExtractionJobEvent::ExtractionSubmitted(_) => {}
        ExtractionJobEvent::ExtractionBegun { claim, at, attempt } => row.begin(claim, at, attempt),
        ExtractionJobEvent::ExtractionAdvanced { at, pages_done, page_count, .. } => {
            row.due_at = Some(at + TimeDelta::seconds(LEASE_SECONDS));
            row.pages_done = i32::try_from(pages_done).unwrap_or(i32::MAX);
            row.page_count = page_count.and_then(|count| i32::try_from(count).ok());
        }
        ExtractionJobEvent::ExtractionCompleted { claim, result } => row.complete(at, claim, result),
        ExtractionJobEvent::ExtractionFailed { failure } => {
            row.end(ExtractionStatus::Failed, at);
            row.note(failure);
        }
        ExtractionJobEvent::ExtractionReleased { due_at, failure, .. } => {
            row.wait(due_at);
            row.note(failure);
        }
        ExtractionJobEvent::ExtractionGivenBack { .. } => {
            row.wait(at);
            row.attempts -= 1;
        }
        ExtractionJobEvent::ExtractionCancelled => row.end(ExtractionStatus::Cancelled, at),
        ExtractionJobEvent::ExtractionRetried => {
            row.wait(at);
            (row.error, row.error_code) = (None, None);
        }
        ExtractionJobEvent::ExtractionInputRemoved => row.input_kept = false,
        ExtractionJobEvent::ExtractionResultExpired => (row.result_kept, row.discarded) = (false, false),
        ExtractionJobEvent::ExtractionDiscarded => (row.kept, row.discarded) = (false, true),
        ExtractionJobEvent::ExtractionDeleted => {
            (row.kept, row.result_kept, row.discarded, row.deleted) = (false, false, true, true);
        }
    }
}

impl ExtractionJobRow {
    fn new(recorded: &RecordedEvent, new: NewExtractionJob) -> Self {
        let at = recorded.recorded_at;
        Self {
            id: ExtractionJobId(recorded.aggregate_id),
            owner_id: new.owner,
            filename: new.filename,
            size: i64::try_from(new.size).unwrap_or(i64::MAX),
            sha256: new.sha256.into(),
            input_id: new.input,
            options: Json(new.options),
            callback_url: new.callback.map(|callback| callback.url),
            status: ExtractionStatus::Queued.into(),
            attempts: 0,
            due_at: Some(at),
            claim: None,
            claims: Vec::new(),
            pages_done: 0,
            page_count: None,
            mime_type: None,
            error: None,
            error_code: None,
            result_id: None,
            result_size: None,
            extractor_used: None,
            ocr_engine_used: None,
            confidence: None,
            cached: false,
            milliseconds: None,
            warnings: Vec::new(),
            input_kept: true,
            result_kept: false,
            kept: false,
            discarded: false,
            deleted: false,
            version: recorded.sequence,
            created_at: at,
            started_at: None,
            ended_at: None,
            updated_at: at,
        }
    }

    fn begin(&mut self, claim: Uuid, at: DateTime<Utc>, attempt: u32) {
        self.status = ExtractionStatus::Processing.into();
        self.attempts = i32::try_from(attempt).unwrap_or(i32::MAX);
        self.due_at = Some(at + TimeDelta::seconds(LEASE_SECONDS));
        self.claim = Some(claim);
        self.claims.push(claim);
        self.pages_done = 0;
        self.started_at = Some(at);
    }

    fn complete(&mut self, at: DateTime<Utc>, claim: Uuid, result: ExtractionResult) {
        self.end(ExtractionStatus::Completed, at);
        (self.error, self.error_code) = (None, None);
        self.mime_type = Some(result.mime_type);
        self.page_count = result.page_count.and_then(|count| i32::try_from(count).ok());
        self.pages_done = self.page_count.unwrap_or_default();
        self.result_id = Some(claim);
        self.result_size = i64::try_from(result.size).ok();
        self.extractor_used = Some(result.extractor_used);
        self.ocr_engine_used = result.ocr_engine_used;
        self.confidence = Some(result.confidence);
        self.cached = result.cached;
        self.milliseconds = i64::try_from(result.milliseconds).ok();
        self.warnings = result.warnings;
        self.kept = self.options.keep;
        self.result_kept = !self.kept;
    }

    fn wait(&mut self, due_at: DateTime<Utc>) {
        self.status = ExtractionStatus::Queued.into();
        (self.due_at, self.claim, self.ended_at) = (Some(due_at), None, None);
    }

    fn end(&mut self, status: ExtractionStatus, at: DateTime<Utc>) {
        self.status = status.into();
        (self.due_at, self.claim, self.ended_at) = (None, None, Some(at));
    }

    fn note(&mut self, failure: ExtractionFailure) {
        (self.error, self.error_code) = (Some(failure.message), Some(failure.code));
    }
}
