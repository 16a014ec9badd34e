//! Deletes staged bytes: of cancelled transfers at once, of others when they have been kept long enough. The agents of
//! a cancelled transfer are told here too.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::json;
use signalbox_domain::{
    kernel::AgentId,
    transfer::{Leg, Transfer, TransferCommand},
};
use signalbox_messaging::MailMessage;
use signalbox_projections::transfer::{TransferRow, mail_key, queries};

use crate::{Context, Worker, WorkerError};

/// Transfers of one step.
const BATCH: i64 = 100;

/// The cleanup.
#[derive(Debug)]
pub struct Cleanup;

impl Worker for Cleanup {
    const NAME: &'static str = "cleanup";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let keep = TimeDelta::hours(i64::from(context.config.transfer.retention_hours));
        let due = queries::uncleaned_transfers(&context.pool, context.clock.now() - keep, BATCH).await?;
        for row in &due {
            if row.status == "cancelled" {
                tell_agents(context, row).await?;
            }
            context.blobs.delete_transfer(row.id).await?;
            let recorded = TransferCommand::RecordCleanup;
            context.send_if_still_due::<Transfer>(Self::NAME, row.id, "cleanup", &recorded).await?;
        }
        Ok(due.len() as i64 == BATCH)
    }
}

/// Removes what crashes have left of files that were deleted.
#[derive(Debug)]
pub struct BlobSweep;

impl Worker for BlobSweep {
    const NAME: &'static str = "blob-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        context.blobs.sweep().await?;
        Ok(false)
    }
}

/// Takes back the request that is still waiting, and tells whoever may have taken it.
async fn tell_agents(context: &Context, row: &TransferRow) -> Result<(), WorkerError> {
    let attempt = row.attempts.unsigned_abs();
    if attempt == 0 {
        return Ok(());
    }
    let message = MailMessage {
        kind: "cancel_transfer".to_owned(),
        data: json!({ "transfer_id": row.number.to_string() }),
    };
    for (leg, agent) in [(Leg::Upload, row.source_agent_id), (Leg::Download, row.destination_agent_id)] {
        let agent = AgentId(agent);
        context.mailbox.withdraw(agent, &mail_key(row.number, attempt, leg)).await?;
        context.mailbox.post(agent, &format!("cancel.{}", row.number), &message).await?;
    }
    Ok(())
}
