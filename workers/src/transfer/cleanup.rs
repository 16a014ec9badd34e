//! Deletes staged bytes: of cancelled and deleted transfers at once, of others after their retention time. The agents of a
//! cancelled transfer are notified here too.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta};
use serde_json::json;
use signalbox_blob_store::{BlobError, BlobStore};
use signalbox_config::Transfer as Settings;
use signalbox_domain::{
    kernel::TransferId,
    transfer::{Leg, Transfer, TransferCommand, TransferStatus},
};
use signalbox_messaging::{MailMessage, Mailbox};
use signalbox_projections::transfer::{TransferRow, mail_key, queries};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError, failures::Failures, worker::REMOVAL};

/// Transfers of one step.
const BATCH: i64 = 100;

/// The cleanup.
#[derive(Debug)]
pub struct Cleanup {
    mailbox: Mailbox,
    blobs: BlobStore,
    /// How long the bytes of transfers that have ended are kept.
    keep: TimeDelta,
    failures: Failures,
    /// Cancelled transfers whose agents were notified, until their bytes are gone.
    notified: Mutex<HashSet<Uuid>>,
}

impl Worker for Cleanup {
    const NAME: &'static str = "cleanup";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn limit(&self) -> Duration {
        REMOVAL
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        // Cancelled and deleted transfers are due whatever the time is.
        let before = context.sweep_time().await?.map_or(DateTime::UNIX_EPOCH, |now| now - self.keep);
        self.forget_cleaned(context).await?;
        self.notify_cancelled(context).await?;
        let paused = self.failures.paused();
        let due = queries::uncleaned_transfers(&context.pool, before, &paused, BATCH).await?;
        let mut is_reachable = true;
        for row in &due {
            let cleaned = self.clean(context, row).await;
            // Each further request would wait as long for the same bucket. If it refuses this transfer only, the next step
            // continues with the others.
            is_reachable = !matches!(cleaned, Err(WorkerError::Blob(BlobError::Unavailable { .. })));
            self.failures.settle(row.id.0, cleaned)?;
            if !is_reachable {
                break;
            }
            // Removals may take long.
            self.notify_cancelled(context).await?;
        }
        self.failures.report(context, Self::NAME).await?;
        Ok(is_reachable && due.len() as i64 == BATCH)
    }
}

impl Cleanup {
    /// One that removes bytes from `blobs`, and notifies agents by `mailbox`.
    pub fn new(mailbox: Mailbox, blobs: BlobStore, config: &Settings) -> Self {
        let keep = TimeDelta::hours(i64::from(config.retention_hours));
        Self { mailbox, blobs, keep, failures: Failures::default(), notified: Mutex::default() }
    }

    /// Notifies the agents of cancelled transfers, once, also where the bytes cannot be removed for long.
    async fn notify_cancelled(&self, context: &Context) -> Result<(), WorkerError> {
        let notified: Vec<_> = self.notified().iter().copied().collect();
        // Before this time nothing has ended: only cancelled and deleted transfers are due.
        let cancelled =
            queries::uncleaned_transfers(&context.pool, DateTime::UNIX_EPOCH, &notified, BATCH).await?;
        for row in &cancelled {
            // One that was deleted had ended, and its agents know.
            if row.status.is(TransferStatus::Cancelled) {
                notify_agents(&self.mailbox, row).await?;
            }
            self.notified().insert(row.id.0);
        }
        Ok(())
    }

    async fn forget_cleaned(&self, context: &Context) -> Result<(), WorkerError> {
        let notified: Vec<_> = self.notified().iter().copied().map(TransferId).collect();
        if notified.is_empty() {
            return Ok(());
        }
        let rows = queries::transfers_by_id(&context.pool, &notified).await?;
        *self.notified() = rows.iter().filter(|row| !row.cleaned).map(|row| row.id.0).collect();
        Ok(())
    }

    fn notified(&self) -> MutexGuard<'_, HashSet<Uuid>> {
        self.notified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn clean(&self, context: &Context, row: &TransferRow) -> Result<(), WorkerError> {
        self.blobs.delete_transfer(row.id.0).await?;
        let recorded = TransferCommand::RecordCleanup;
        context.send_for_item::<Transfer>(Self::NAME, row.id.0, "cleanup", &recorded).await?;
        Ok(())
    }
}

/// Removes remains of deleted files that crashes have left.
#[derive(Debug)]
pub struct BlobSweep {
    blobs: BlobStore,
}

impl BlobSweep {
    /// One of `blobs`.
    pub fn new(blobs: BlobStore) -> Self {
        Self { blobs }
    }
}

impl Worker for BlobSweep {
    const NAME: &'static str = "blob-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn limit(&self) -> Duration {
        // All that was deleted, in however many files.
        4 * REMOVAL
    }

    async fn step(&self, _: &Context) -> Result<bool, WorkerError> {
        self.blobs.sweep().await?;
        Ok(false)
    }
}

/// Removes the pending request from the mailbox, and notifies the agents that may have received it.
async fn notify_agents(mailbox: &Mailbox, row: &TransferRow) -> Result<(), WorkerError> {
    let attempt = row.attempts.unsigned_abs();
    if attempt == 0 {
        return Ok(());
    }
    let message = MailMessage {
        kind: "cancel_transfer".to_owned(),
        data: json!({ "transfer_id": row.number.to_string() }),
    };
    let agents = [(Leg::Upload, row.source_agent_id), (Leg::Download, Some(row.destination_agent_id))];
    for (leg, agent) in agents {
        let Some(agent) = agent else { continue };
        mailbox.withdraw(agent, &mail_key(row.number, attempt, leg)).await?;
        mailbox.post(agent, &format!("cancel.{}", row.number), &message).await?;
    }
    Ok(())
}
