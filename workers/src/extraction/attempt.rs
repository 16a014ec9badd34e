use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use chrono::TimeDelta;
use serde_json::json;
use signalbox_blob_store::{BlobError, BlobKey};
use signalbox_database::ServerClock;
use signalbox_documents::{Documents, Extraction, Failure, FailureCode, Options, Share, Source};
use signalbox_domain::extraction::{
    ExtractionFailure, ExtractionJob, ExtractionJobCommand, ExtractionOptions, ExtractionResult,
    bounded_warnings,
};
use signalbox_projections::extraction::{
    ExtractionJobRow,
    anonymous::{self, Kept},
    queries::job,
};
use signalbox_texts::{CacheKey, Origin, Texts};
use tokio::{
    fs::File,
    time::{Instant, MissedTickBehavior, interval_at},
};
use uuid::Uuid;

use super::{ExtractionRunner, Store, running::Place};
use crate::{Context, Worker, WorkerError};

/// Interval of progress reports in the log, which are also heartbeats: several within a lease.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// The delay after an attempt that failed for a reason outside the document; longer after each.
const RETRY_DELAY: TimeDelta = TimeDelta::seconds(5);

/// One attempt to read a document, under a claim.
pub(super) struct Attempt {
    pub(super) context: Context,
    pub(super) documents: Documents,
    pub(super) store: Store,
    /// Of the bytes kept for callers without a login.
    pub(super) limits: Kept,
    pub(super) row: ExtractionJobRow,
    pub(super) claim: Uuid,
    /// Claims are compared by processes on other machines.
    pub(super) time: ServerClock,
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
    /// The claim was lost; this attempt's result is not needed.
    Lost,
}

impl Attempt {
    /// Reads the document and records the result. The place is freed for the next document before that is written.
    pub(super) async fn run(&self, place: Place) -> Result<(), WorkerError> {
        let begun = Instant::now();
        let Some(options) = options(&self.row.options) else {
            let message = "this version of the service does not know an option of the job: submit it again";
            return self.fail(failure(ExtractionFailure::UNKNOWN_OPTION, message)).await;
        };
        let key =
            CacheKey::new(self.row.owner_id.map(Uuid::from), &self.row.sha256, &self.row.filename, &options)?;
        let ended = self.read(&options, &key).await?;
        drop(place);
        match ended {
            Ended::Text { extraction, cached } => {
                let milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
                if !cached {
                    self.remember(&key, &options, &extraction).await;
                }
                self.complete(&extraction, cached, milliseconds, &key).await
            }
            Ended::Failed(cause) => self.fail(cause).await,
            Ended::Hindered(cause) => self.release(cause).await,
            Ended::Lost => Ok(()),
        }
    }

    fn texts(&self) -> &Texts {
        &self.store.texts
    }

    /// Remembers the text before the job is seen to have completed, so that the next identical request finds it.
    async fn remember(&self, key: &CacheKey, options: &Options, extraction: &Extraction) {
        let remembered = async {
            if let Some(origin) = self.origin(extraction).await? {
                self.texts().remember(key, options, extraction, &origin).await?;
            }
            Ok::<_, WorkerError>(())
        };
        if let Err(error) = remembered.await {
            tracing::warn!(%error, job = %self.row.id, "a text was not remembered");
        }
    }

    async fn read(&self, options: &Options, key: &CacheKey) -> Result<Ended, WorkerError> {
        if let Some(extraction) = self.texts().recall(key).await? {
            return Ok(Ended::Text { extraction: Box::new(extraction), cached: true });
        }
        let input = BlobKey::new(self.row.input_id, "input");
        let (length, file) = match self.store.blobs.open_file(&input).await {
            Ok(found) => found,
            Err(BlobError::NotFound) => {
                let message = "the document is not in the blob store any more: submit it again";
                return Ok(Ended::Failed(failure(ExtractionFailure::INPUT_MISSING, message)));
            }
            Err(error) => {
                tracing::error!(%error, job = %self.row.id, "a document cannot be read from the blob store");
                return Ok(Ended::Hindered(failure(
                    ExtractionFailure::STORAGE,
                    "the document could not be read from the blob store",
                )));
            }
        };
        let source = Source {
            bytes: File::from_std(file),
            length,
            name: &self.row.filename,
            share: Share::operator(),
        };
        self.extract(source, options).await
    }

    /// Has the document read, and reports progress meanwhile.
    async fn extract(&self, source: Source<'_, File>, options: &Options) -> Result<Ended, WorkerError> {
        if self.row.owner_id.is_none()
            && let Err(cause) = self.documents.check_anonymous()
        {
            return Ok(Ended::Hindered(failure_of(&cause)));
        }
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
                        Err(cause @ Failure::Unavailable { .. }) => Ended::Hindered(failure_of(&cause)),
                        Err(cause) => Ended::Failed(failure_of(&cause)),
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

    /// Returns false if the claim was lost. An unreachable bus is not a reason to stop.
    async fn advance(&self, beat: u32, pages_done: u32, page_count: Option<u32>) -> bool {
        let at = self.time.now();
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
        key: &CacheKey,
    ) -> Result<(), WorkerError> {
        let bytes = Texts::encode(extraction)?;
        if self.row.owner_id.is_none()
            && !anonymous::note_text(&self.context.pool, self.row.id, length(bytes.len()), self.limits)
                .await?
        {
            let message = "the text does not fit into what is kept for callers without a login: log in, or try again later";
            return self.fail(failure(FailureCode::LimitExceeded.as_str(), message)).await;
        }
        let written = match self.texts().write_bytes(self.claim, bytes).await {
            Ok(written) => written,
            Err(error) => {
                tracing::error!(%error, job = %self.row.id, "a text cannot be stored");
                return self
                    .release(failure(ExtractionFailure::STORAGE, "the text could not be stored"))
                    .await;
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
            warnings: bounded_warnings(&extraction.warnings),
        };
        // If the outcome of the command is unknown, the text stays: the job may point to it.
        if !self.send("complete", &ExtractionJobCommand::Complete { claim: self.claim, result }).await? {
            self.texts().remove(self.claim).await?;
            // A job that was deleted meanwhile leaves no text that would answer for its document. Where the read model does not show
            // that yet, its files are still to be removed.
            if job(&self.context.pool, self.row.id).await?.is_some_and(|row| row.deleted) {
                self.texts().evict(key).await?;
            }
        }
        Ok(())
    }

    /// The principal that the text counts against if it is kept a second time, for those who send the same document; none if
    /// it has no room.
    async fn origin(&self, extraction: &Extraction) -> Result<Option<Origin>, WorkerError> {
        if self.row.owner_id.is_some() {
            return Ok(Some(Origin::User));
        }
        let pool = &self.context.pool;
        let Some(network) = anonymous::network_of(pool, self.row.id).await? else { return Ok(None) };
        // The job's own text needs the same room afterwards.
        let bytes = 2 * Texts::encode(extraction)?.len();
        let has_room = anonymous::kept(pool, &network).await?.has_room(length(bytes), self.limits);
        Ok(has_room.then_some(Origin::Network(network)))
    }

    async fn fail(&self, failure: ExtractionFailure) -> Result<(), WorkerError> {
        self.send("fail", &ExtractionJobCommand::Fail { claim: self.claim, failure }).await.map(|_| ())
    }

    async fn release(&self, failure: ExtractionFailure) -> Result<(), WorkerError> {
        let due_at = self.time.now() + RETRY_DELAY * (self.row.attempts + 1);
        let command = ExtractionJobCommand::Release { claim: self.claim, due_at, failure };
        self.send("release", &command).await.map(|_| ())
    }

    /// Returns false if the claim was lost.
    async fn send(&self, what: &str, command: &ExtractionJobCommand) -> Result<bool, WorkerError> {
        let key = format!("{what} {}", self.claim);
        let name = ExtractionRunner::NAME;
        let sent =
            self.context.send_if_still_due::<ExtractionJob>(name, self.row.id.0, &key, command).await?;
        Ok(sent.is_some())
    }
}

fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn failure(code: &str, message: &str) -> ExtractionFailure {
    ExtractionFailure { code: code.to_owned(), message: message.to_owned() }
}

fn failure_of(cause: &Failure) -> ExtractionFailure {
    failure(cause.code(), &cause.to_string())
}

/// Converts the log's options to the reader's; both have the same words. A text that is kept is searched by its passages.
pub(super) fn options(words: &ExtractionOptions) -> Option<Options> {
    let options: Options = serde_json::from_value(json!(words)).ok()?;
    Some(Options { passages: words.keep, ..options })
}
