//! Applies firmware updates and rolls them back, one at a time, in one process.
//!
//! Finds its work in the read model. `Begin` takes ownership permanently: this worker's lease ensures that no other
//! process starts, and the claim in the log that a process that has lost the lease finishes nothing. Changes on the
//! disk are made under a lock beside the versions. If it crashes, the next one performs the remaining steps, from the
//! state in the log; each step on the disk and the hook may run twice. After three crashes the update
//! fails, and the previous firmware stays in force.

use std::{sync::Arc, time::Duration};

use signalbox_domain::{
    fleet::{Firmware, FirmwareCommand},
    kernel::{Decider, ReleaseVersion},
};
use signalbox_firmware::Locked;
use signalbox_messaging::Wakeup;
use signalbox_projections::fleet::firmware::{FirmwareRow, deleted_firmware, firmware_at_work};

use super::attempt::{Attempt, NAME};
use crate::{Context, Worker, WorkerError, failures::Failures, worker::REMOVAL};

/// Deleted updates of one step.
const BATCH: i64 = 100;

/// The worker.
#[derive(Debug, Default)]
pub struct FirmwareRunner {
    failures: Failures,
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

    fn limit(&self, context: &Context) -> Duration {
        let config = &context.config.firmware;
        REMOVAL + Duration::from_secs(config.download_seconds + config.hook_seconds)
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
        let Some(locked) = context.firmware.lock()? else {
            tracing::warn!("another process still changes the firmware on this machine: waiting for its end");
            return Ok(false);
        };
        // Before the work: a version that was deleted may be there again.
        for row in &deleted {
            self.failures.settle(row.id.0, remove_files(context, &locked, row).await)?;
        }
        if let Err(error) = locked.sweep() {
            tracing::warn!(%error, "remains of firmware cannot be removed");
        }
        let Some(row) = work else { return Ok(deleted.len() as i64 == BATCH) };
        let claim = context.clock.new_id();
        let begin = FirmwareCommand::Begin { claim };
        let key = format!("begin {claim}");
        let (name, id, version) = (Self::NAME, row.id.0, row.version);
        let begun = context.send_if_unchanged::<Firmware>(name, id, version, &key, &begin).await?;
        // Otherwise the row lags behind the log.
        if begun.is_some() {
            let attempt = Attempt { context, locked: Arc::new(locked), row, claim };
            context.traced::<Firmware, _>(name, id, attempt.run()).await?;
        }
        // The result changes the read model, which wakes this worker.
        Ok(false)
    }
}

/// Removes the files of a deleted update.
async fn remove_files(context: &Context, locked: &Locked, row: &FirmwareRow) -> Result<(), WorkerError> {
    for blob in [Some(row.id.0), row.blob_id].into_iter().flatten() {
        context.blobs.delete_transfer(blob).await?;
    }
    let release: Option<ReleaseVersion> = row.release.parse().ok();
    if let Some(release) = release
        && locked.current()? != Some(release)
    {
        locked.remove(release)?;
    }
    let removed = FirmwareCommand::RecordFilesRemoved;
    let name = FirmwareRunner::NAME;
    context.send_for_item::<Firmware>(name, row.id.0, "files removed", &removed).await.map(|_| ())
}
