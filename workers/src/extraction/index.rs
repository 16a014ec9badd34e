//! Keeps the index of kept texts: writes what is missing, and removes the files of documents that their owners deleted.
//!
//! Reads the list of documents in the read model and texts in the blob store; writes the index. All of it can be repeated:
//! a document is indexed in one transaction, and one that was deleted is listed until its last file is gone. A rebuild of the read
//! model does not touch the index, and an index that was lost, or that a process of an earlier release has written, is written again.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    extraction::{ExtractionJob, ExtractionJobCommand, LEASE_SECONDS},
    kernel::Decider,
};
use signalbox_messaging::Wakeup;
use signalbox_projections::extraction::{
    ExtractionJobRow,
    documents::{discarded, index, unindex, unindex_strays, unindexed},
};
use signalbox_texts::CacheKey;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Store, attempt::options, sections::sections};
use crate::{Context, Worker, WorkerError, failures::Failures, worker::REMOVAL};

/// Documents of one step, of each kind.
const BATCH: i64 = 20;
/// How often all documents are compared with the index, not only recent ones.
const COMPARISON: Duration = Duration::from_secs(60);
/// Documents that were submitted so long ago are looked for only then.
const RECENT: TimeDelta = TimeDelta::hours(1);

/// The worker.
#[derive(Debug)]
pub struct DocumentIndex {
    store: Store,
    indexing: Failures,
    removals: Failures,
    compared: Mutex<Option<Instant>>,
}

impl Worker for DocumentIndex {
    const NAME: &'static str = "document-index";

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == ExtractionJob::TYPE)
    }

    fn gathers(&self) -> Duration {
        Duration::from_millis(100)
    }

    fn limit(&self) -> Duration {
        REMOVAL
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let now = context.server_time().await?;
        let is_comparison = self.compared().is_none_or(|last| last.elapsed() >= COMPARISON);
        let since = if is_comparison { DateTime::<Utc>::UNIX_EPOCH } else { now - RECENT };
        let missing = unindexed(&context.pool, since, &self.indexing.paused(), BATCH).await?;
        for row in &missing {
            self.indexing.settle(row.id.0, self.write(context, row).await)?;
        }
        self.indexing.report(context, "document-index.texts").await?;
        let lapsed = now - TimeDelta::seconds(LEASE_SECONDS);
        let deleted = discarded(&context.pool, lapsed, &self.removals.paused(), BATCH).await?;
        for row in &deleted {
            self.removals.settle(row.id.0, self.remove(context, row).await)?;
        }
        self.removals.report(context, "document-index.removals").await?;
        let is_full = [missing.len(), deleted.len()].contains(&(BATCH as usize));
        if is_comparison && !is_full {
            unindex_strays(&context.pool, now).await?;
            *self.compared.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        Ok(is_full)
    }
}

impl DocumentIndex {
    /// The index of the texts in `store`.
    pub fn new(store: Store) -> Self {
        Self {
            store,
            indexing: Failures::default(),
            removals: Failures::default(),
            compared: Mutex::default(),
        }
    }

    fn compared(&self) -> Option<Instant> {
        *self.compared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(&self, context: &Context, row: &ExtractionJobRow) -> Result<(), WorkerError> {
        let text = match row.result_id {
            Some(id) => self.store.texts.read(id).await?,
            None => None,
        };
        // A log that was carried to another system arrives without the blob store.
        let Some(text) = text else {
            tracing::warn!(job = %row.id, "a kept text is not in the blob store: it cannot be searched");
            return Ok(index(&context.pool, row.id, &[]).await?);
        };
        Ok(index(&context.pool, row.id, &sections(&text)).await?)
    }

    /// Removes everything that has words of the document: the texts of all attempts, the one that answers for the
    /// same bytes, the document and the index. The event that ends this is the last step.
    async fn remove(&self, context: &Context, row: &ExtractionJobRow) -> Result<(), WorkerError> {
        let Store { texts, blobs } = &self.store;
        for claim in &row.claims {
            texts.remove(*claim).await?;
        }
        if let Some(options) = options(&row.options) {
            let key = CacheKey::new(row.owner_id.map(Uuid::from), &row.sha256, &row.filename, &options)?;
            texts.evict(&key).await?;
        }
        unindex(&context.pool, row.id).await?;
        blobs.delete_transfer(row.input_id).await?;
        if row.input_kept {
            send(context, row, "input removed", ExtractionJobCommand::RecordInputRemoved).await?;
        }
        send(context, row, "result expired", ExtractionJobCommand::RecordResultExpired).await
    }
}

async fn send(
    context: &Context,
    row: &ExtractionJobRow,
    what: &str,
    command: ExtractionJobCommand,
) -> Result<(), WorkerError> {
    context.send_for_item::<ExtractionJob>(DocumentIndex::NAME, row.id.0, what, &command).await.map(drop)
}
