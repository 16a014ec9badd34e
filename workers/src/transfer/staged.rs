//! Removes files that gateways received and that no event refers to: the gateway crashed, the client disconnected, or
//! a command that got no answer was refused in the end.

use std::time::Duration;

use signalbox_blob_store::BlobStore;
use signalbox_database::{StagedFile, forget_staged, give_up_staged, postpone_staged};
use signalbox_event_store::mentions;

use crate::{Context, Worker, WorkerError, worker::REMOVAL};

/// Files of one step.
const BATCH: i64 = 100;

/// The sweep of files of requests.
#[derive(Debug)]
pub struct StagedSweep {
    blobs: BlobStore,
}

impl StagedSweep {
    /// One of `blobs`.
    pub fn new(blobs: BlobStore) -> Self {
        Self { blobs }
    }
}

impl Worker for StagedSweep {
    const NAME: &'static str = "staged-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn limit(&self) -> Duration {
        REMOVAL
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let Some(now) = context.sweep_time().await? else { return Ok(false) };
        let rows = give_up_staged(&context.pool, now, BATCH).await?;
        let mut is_getting_on = false;
        for row in &rows {
            match judge(context, &self.blobs, row).await {
                Ok(()) => is_getting_on = true,
                // One file that cannot be removed does not keep the others: it is due again after an hour.
                Err(error) => {
                    tracing::warn!(%error, id = %row.id, "a file that was given up stays for now");
                    postpone_staged(&context.pool, row.id, context.clock.manual_time()).await?;
                }
            }
        }
        Ok(is_getting_on && rows.len() as i64 == BATCH)
    }
}

/// Removes the file unless the log refers to it.
async fn judge(context: &Context, blobs: &BlobStore, row: &StagedFile) -> Result<(), WorkerError> {
    if !is_referred_to(context, row).await? {
        blobs.delete_transfer(row.id).await?;
    }
    forget_staged(&context.pool, row.id).await?;
    Ok(())
}

async fn is_referred_to(context: &Context, row: &StagedFile) -> Result<bool, sqlx::Error> {
    match (&row.aggregate_type, row.aggregate_id) {
        (Some(kind), Some(id)) => mentions(&context.pool, kind, id, row.id).await,
        _ => Ok(false),
    }
}
