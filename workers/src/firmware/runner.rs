//! Applies firmware updates and rolls them back, one at a time, in one process.
//!
//! Finds its work in the read model; `Begin` takes it over from whoever had it, for good: the lease of this worker says that
//! nobody else begins, and the claim in the log that nobody who has lost the lease ends anything. Changes on the disk are made
//! under a lock beside the versions. If it dies, the next one does what is left, from the state that the log shows; each
//! step on the disk and the hook may be done twice. After [`MAX_ATTEMPTS`] deaths the update fails, and what was in force is.

use std::{sync::Arc, time::Duration};

use signalbox_domain::{
    fleet::{Firmware, FirmwareCommand},
    kernel::{Decider, ReleaseVersion},
};
use signalbox_firmware::Locked;
use signalbox_messaging::Wakeup;
use signalbox_projections::fleet::firmware::{FirmwareRow, deleted_firmware, firmware_at_work};

use super::attempt::Attempt;
use crate::{Context, Worker, WorkerError};

/// How often an update is begun at most, whatever ends the attempts.
pub(super) const MAX_ATTEMPTS: i32 = 3;
/// Deleted updates of one step.
const BATCH: i64 = 100;

/// The worker.
#[derive(Debug)]
pub struct FirmwareRunner;

impl Worker for FirmwareRunner {
    const NAME: &'static str = "firmware";

    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Firmware::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let deleted = deleted_firmware(&context.pool, BATCH).await?;
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
            remove_files(context, &locked, row).await?;
        }
        locked.sweep()?;
        let Some(row) = work else { return Ok(deleted.len() as i64 == BATCH) };
        let claim = context.clock.new_id();
        let begin = FirmwareCommand::Begin { claim };
        let key = format!("begin {claim}");
        let (name, id, version) = (Self::NAME, row.id, row.version);
        let begun = context.send_if_unchanged::<Firmware>(name, id, version, &key, &begin).await?;
        // Else the row is not yet what the log says.
        if begun.is_some() {
            let attempt = Attempt { context, locked: Arc::new(locked), row, claim };
            context.traced::<Firmware, _>(name, id, attempt.run()).await?;
        }
        // What has come of it shows in the read model, which wakes this worker.
        Ok(false)
    }
}

/// Removes what an update that was deleted has left behind.
async fn remove_files(context: &Context, locked: &Locked, row: &FirmwareRow) -> Result<(), WorkerError> {
    for blob in [Some(row.id), row.blob_id].into_iter().flatten() {
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
    context.send_if_still_due::<Firmware>(name, row.id, "files removed", &removed).await.map(|_| ())
}
