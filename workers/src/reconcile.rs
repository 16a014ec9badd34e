//! Puts back what the mailboxes should hold and do not.
//!
//! A transfer whose agent has been asked but has not begun has its request in that agent's mailbox, or in the agent's
//! hands. Where neither shows for a while (JetStream lost its disk, a worker died before it posted, a message went
//! down with a socket), the request is left again; agents recognise repetitions. This is what makes mailboxes safe to
//! lose.

use std::time::Duration;

use chrono::TimeDelta;
use signalbox_domain::{kernel::AgentId, transfer::Leg};
use signalbox_projections::transfer::{TransferRow, mail_key, queries};
use uuid::Uuid;

use crate::{
    Context, Worker, WorkerError,
    dispatch::{post_request, requested_leg},
};

/// Transfers looked at together.
const BATCH: i64 = 500;
/// An agent that has taken its request has this long to begin before it is asked again.
const PATIENCE: TimeDelta = TimeDelta::seconds(15);

/// The reconciler.
#[derive(Debug)]
pub struct Reconciler;

impl Worker for Reconciler {
    const NAME: &'static str = "reconciler";

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        context.mailbox.ensure().await?;
        let mut after = Uuid::nil();
        loop {
            let idle_since = context.clock.now() - PATIENCE;
            let rows =
                queries::idle_transfers(&context.pool, &["dispatched", "staged"], idle_since, after, BATCH)
                    .await?;
            let Some(last) = rows.last() else { return Ok(false) };
            after = last.id;
            for row in &rows {
                put_back(context, row).await?;
            }
        }
    }
}

async fn put_back(context: &Context, row: &TransferRow) -> Result<(), WorkerError> {
    let Some(leg) = requested_leg(row) else { return Ok(()) };
    let agent = match leg {
        Leg::Upload => row.source_agent_id,
        Leg::Download => row.destination_agent_id,
    };
    let attempt = row.attempts.unsigned_abs();
    if context.mailbox.holds(AgentId(agent), &mail_key(row.number, attempt, leg)).await? {
        return Ok(());
    }
    tracing::info!(transfer = row.number, attempt, "a request is left in its mailbox again");
    post_request(context, row, attempt, leg).await
}
