use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use chrono::TimeDelta;
use serde_json::json;
use signalbox_blob_store::{BlobError, BlobKey};
use signalbox_documents::{Documents, Extraction, Failure, Options, Source};
use signalbox_domain::extraction::{
    ExtractionFailure, ExtractionJob, ExtractionJobCommand, ExtractionOptions, ExtractionResult,
};
use signalbox_projections::extraction::ExtractionJobRow;
use signalbox_texts::{CacheKey, Texts};
use tokio::{
    fs::File,
    time::{Instant, MissedTickBehavior, interval_at},
};
use uuid::Uuid;

use super::{ExtractionRunner, running::Place};
use crate::{Context, Worker, WorkerError};

/// How often the log is told how far a document is, and that its worker lives: several times within a lease.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// The wait after an attempt that says nothing of the document; longer after each.
const PAUSE: TimeDelta = TimeDelta::seconds(5);

/// One attempt to read a document, under a claim.
pub(super) struct Attempt {
    pub(super) context: Context,
    pub(super) documents: Documents,
    pub(super) row: ExtractionJobRow,
    pub(super) claim: Uuid,
}

/// How an attempt ended.
enum Ended {
    Text {
        extraction: Box<Extraction>,
        cached: bool,
    },
    /// The document gives no text.
    Failed(ExtractionFailure),
    /// Something else was in the way; another attempt may succeed.
    Hindered(ExtractionFailure),
    /// The claim is gone; nobody waits for this attempt.
    Lost,
}

impl Attempt {
    /// Reads the document and records what came of it. The place is free for the next document before that is written.
    pub(super) async fn run(&self, place: Place) -> Result<(), WorkerError> {
        let begun = Instant::now();
        let Some(options) = options(&self.row.options) else {
            let message = "this version of the service does not know an option of the job: submit it again";
            return self.fail(failure("unknown_option", message)).await;
        };
        let key = CacheKey::new(self.row.owner_id, &self.row.sha256, &self.row.filename, &options)?;
        let ended = self.read(&options, &key).await?;
        drop(place);
        match ended {
            Ended::Text { extraction, cached } => {
                let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                self.complete(&extraction, cached, milliseconds).await?;
                if !cached {
                    self.texts().remember(&key, &options, &extraction).await?;
                }
                Ok(())
            }
            Ended::Failed(cause) => self.fail(cause).await,
            Ended::Hindered(cause) => self.release(cause).await,
            Ended::Lost => Ok(()),
        }
    }

    fn texts(&self) -> &Texts {
        &self.context.texts
    }

    async fn read(&self, options: &Options, key: &CacheKey) -> Result<Ended, WorkerError> {
        if let Some(extraction) = self.texts().recall(key).await? {
            return Ok(Ended::Text { extraction: Box::new(extraction), cached: true });
        }
        let input = BlobKey::new(self.row.input_id, "input");
        let (length, file) = match self.context.blobs.open_file(&input).await {
            Ok(found) => found,
            Err(BlobError::NotFound) => {
                let message = "the document is not in the blob store any more: submit it again";
                return Ok(Ended::Failed(failure("input_missing", message)));
            }
            Err(error) => {
                tracing::error!(%error, job = %self.row.id, "a document cannot be read from the blob store");
                return Ok(Ended::Hindered(failure(
                    "storage",
                    "the document could not be read from the blob store",
                )));
            }
        };
        let source = Source { bytes: File::from_std(file), length, name: &self.row.filename };
        self.extract(source, options).await
    }

    /// Has the document read, and says meanwhile how far it is.
    async fn extract(&self, source: Source<'_, File>, options: &Options) -> Result<Ended, WorkerError> {
        let (done, all) = (AtomicU32::new(0), AtomicU32::new(0));
        let mut progress = |pages_done: usize, page_count: usize| {
            let number = |count| u32::try_from(count).unwrap_or(u32::MAX);
            done.store(number(pages_done), Ordering::Relaxed);
            all.store(number(page_count), Ordering::Relaxed);
        };
        let reading = self.documents.extract(source, options, &mut progress);
        tokio::pin!(reading);
        let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for beat in 0_u32.. {
            tokio::select! {
                ended = &mut reading => {
                    return Ok(match ended {
                        Ok(extraction) => Ended::Text { extraction: Box::new(extraction), cached: false },
                        Err(cause @ Failure::Unavailable { .. }) => Ended::Hindered(told(&cause)),
                        Err(cause) => Ended::Failed(told(&cause)),
                    });
                }
                _ = heartbeat.tick() => {}
            }
            let page_count = Some(all.load(Ordering::Relaxed)).filter(|count| *count > 0);
            if !self.advance(beat, done.load(Ordering::Relaxed), page_count).await {
                break;
            }
        }
        Ok(Ended::Lost)
    }

    /// False when the claim is gone. A bus that is away is no reason to stop.
    async fn advance(&self, beat: u32, pages_done: u32, page_count: Option<u32>) -> bool {
        let at = self.context.clock.now();
        let command = ExtractionJobCommand::Advance { claim: self.claim, at, pages_done, page_count };
        match self.send(&format!("advance {beat}"), &command).await {
            Ok(sent) => sent,
            Err(error) => {
                tracing::warn!(%error, job = %self.row.id, "it was not said that a document is being read");
                true
            }
        }
    }

    async fn complete(
        &self,
        extraction: &Extraction,
        cached: bool,
        milliseconds: u64,
    ) -> Result<(), WorkerError> {
        let written = match self.texts().write(self.claim, extraction).await {
            Ok(written) => written,
            Err(error) => {
                tracing::error!(%error, job = %self.row.id, "a text cannot be stored");
                return self.release(failure("storage", "the text could not be stored")).await;
            }
        };
        let result = ExtractionResult {
            mime_type: extraction.mime_type.clone(),
            size: written.size,
            sha256: written.sha256,
            extractor_used: extraction.extractor_used.clone(),
            ocr_engine_used: extraction.ocr_engine_used.clone(),
            page_count: extraction.page_count.and_then(|count| u32::try_from(count).ok()),
            confidence: extraction.confidence,
            cached,
            milliseconds,
        };
        // When it is not known whether the command was carried out, the text stays: the job may point to it.
        if !self.send("complete", &ExtractionJobCommand::Complete { claim: self.claim, result }).await? {
            self.texts().remove(self.claim).await?;
        }
        Ok(())
    }

    async fn fail(&self, failure: ExtractionFailure) -> Result<(), WorkerError> {
        self.send("fail", &ExtractionJobCommand::Fail { claim: self.claim, failure }).await.map(|_| ())
    }

    async fn release(&self, failure: ExtractionFailure) -> Result<(), WorkerError> {
        let due_at = self.context.clock.now() + PAUSE * (self.row.attempts + 1);
        let command = ExtractionJobCommand::Release { claim: self.claim, due_at, failure };
        self.send("release", &command).await.map(|_| ())
    }

    /// False when the claim is gone.
    async fn send(&self, what: &str, command: &ExtractionJobCommand) -> Result<bool, WorkerError> {
        let key = format!("{what} {}", self.claim);
        let name = ExtractionRunner::NAME;
        let sent = self.context.send_if_still_due::<ExtractionJob>(name, self.row.id, &key, command).await?;
        Ok(sent.is_some())
    }
}

fn failure(code: &str, message: &str) -> ExtractionFailure {
    ExtractionFailure { code: code.to_owned(), message: message.to_owned() }
}

fn told(cause: &Failure) -> ExtractionFailure {
    failure(cause.code(), &cause.to_string())
}

/// What the words of the log mean to those who read documents; they are the same.
fn options(words: &ExtractionOptions) -> Option<Options> {
    serde_json::from_value(json!(words)).ok()
}
