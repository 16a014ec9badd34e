//! Applies firmware updates and rolls them back, one at a time, in one process.
//!
//! Finds its work in the read model. `Begin` takes ownership permanently: this worker's lease ensures that no other
//! process starts, and the claim in the log that a process that has lost the lease finishes nothing. Changes on the
//! disk are made under a lock beside the versions. If it crashes, the next one performs the remaining steps, from the
//! state in the log; each step on the disk and the hook may run twice. After three crashes the update
//! fails, and the previous firmware stays in force. A hindered attempt, as by a bucket, is continued under its claim while its
//! process has the lease, for an hour at most; the hook is not called again once it has succeeded.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signalbox_blob_store::BlobStore;
use signalbox_domain::{
    fleet::{Firmware, FirmwareCommand},
    kernel::{Decider, Rejection, ReleaseVersion},
};
use signalbox_egress::Egress;
use signalbox_event_store::state;
use signalbox_firmware::{Locked, Updates};
use signalbox_messaging::Wakeup;
use signalbox_projections::fleet::firmware::{FirmwareRow, deleted_firmware, firmware_at_work};

use super::{
    attempt::{Attempt, NAME},
    held::Held,
};
use crate::{Context, Worker, WorkerError, failures::Failures, worker::REMOVAL};

/// Deleted updates of one step.
const BATCH: i64 = 100;

/// The worker.
#[derive(Debug)]
pub struct FirmwareRunner {
    /// The versions on this machine.
    pub(super) firmware: Updates,
    pub(super) blobs: BlobStore,
    pub(super) egress: Egress,
    pub(super) config: signalbox_config::Firmware,
    failures: Failures,
    /// The newest claim of this process. No attempt of it is under way between two steps.
    held: Mutex<Option<Arc<Held>>>,
}

impl Worker for FirmwareRunner {
    const NAME: &'static str = NAME;

    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Firmware::TYPE)
    }

    fn limit(&self) -> Duration {
        REMOVAL + Duration::from_secs(self.config.download_seconds + self.config.hook_seconds)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        self.failures.report(context, Self::NAME).await?;
        let paused = self.failures.paused();
        let mut deleted = deleted_firmware(&context.pool, BATCH + paused.len() as i64).await?;
        deleted.retain(|row| !paused.contains(&row.id.0));
        deleted.truncate(BATCH as usize);
        let work = firmware_at_work(&context.pool).await?;
        if deleted.is_empty() && work.is_none() {
            return Ok(false);
        }
        let Some(locked) = self.firmware.lock()? else {
            tracing::warn!("another process still changes the firmware on this machine: waiting for its end");
            return Ok(false);
        };
        // Before the work: a version that was deleted may be there again.
        for row in &deleted {
            self.failures.settle(row.id.0, self.remove_files(context, &locked, row).await)?;
        }
        if let Err(error) = locked.sweep() {
            tracing::warn!(%error, "remains of firmware cannot be removed");
        }
        let Some(row) = work else { return Ok(deleted.len() as i64 == BATCH) };
        // Otherwise the row lags behind the log.
        if let Some((held, lost)) = self.claim(context, &row).await? {
            let (id, locked) = (row.id.0, Arc::new(locked));
            let attempt = Attempt { context, runner: self, locked, row, held, lost };
            context.traced::<Firmware, _>(Self::NAME, id, attempt.run()).await?;
        }
        // The result changes the read model, which wakes this worker.
        Ok(false)
    }
}

impl FirmwareRunner {
    /// Applies to `firmware` the bundles in `blobs`, and those that it fetches by `egress`.
    pub fn new(
        firmware: Updates,
        blobs: BlobStore,
        egress: Egress,
        config: signalbox_config::Firmware,
    ) -> Self {
        Self { firmware, blobs, egress, config, failures: Failures::default(), held: Mutex::default() }
    }

    /// A claim to the work of `row`, and how many attempts before were lost with their processes. One of this process that was hindered,
    /// as by a bucket that does not answer, is continued: it is not lost.
    async fn claim(
        &self,
        context: &Context,
        row: &FirmwareRow,
    ) -> Result<Option<(Arc<Held>, i32)>, WorkerError> {
        let held = self.held().clone();
        if let Some(held) = held {
            let known: Firmware = state(&context.pool, row.id.0).await.map_err(Rejection::from)?;
            if known.claim() == Some(held.claim) {
                return Ok(Some((held, row.attempts - 1)));
            }
        }
        let held = Arc::new(Held::new(&context.clock));
        // Before it is sent: it may be recorded although its answer is lost.
        *self.held() = Some(held.clone());
        let (begin, key) = (FirmwareCommand::Begin { claim: held.claim }, format!("begin {}", held.claim));
        let begun = context.send_if_unchanged::<Firmware>(NAME, row.id.0, row.version, &key, &begin).await?;
        Ok(begun.map(|_| (held, row.attempts)))
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the files of a deleted update.
    async fn remove_files(
        &self,
        context: &Context,
        locked: &Locked,
        row: &FirmwareRow,
    ) -> Result<(), WorkerError> {
        for blob in [Some(row.id.0), row.blob_id].into_iter().flatten() {
            self.blobs.delete_transfer(blob).await?;
        }
        let release: Option<ReleaseVersion> = row.release.parse().ok();
        if let Some(release) = release
            && locked.current()? != Some(release)
        {
            locked.remove(release)?;
        }
        let removed = FirmwareCommand::RecordFilesRemoved;
        context.send_for_item::<Firmware>(NAME, row.id.0, "files removed", &removed).await.map(|_| ())
    }
}
