//! Puts back what the mailboxes should hold and do not.
//!
//! A transfer whose agent has been asked but has not begun has its request in that agent's mailbox, or in the agent's
//! hands. Where neither shows for a while (JetStream lost its disk, a worker died before it posted, a message went
//! down with a socket), the request is left again; agents recognise repetitions. This is what makes mailboxes safe to
//! lose.
//!
//! A leg that has begun but does not move is asked for again too, if the agent knows its own work: it goes on, reports
//! once more what has ended, or begins what it knows nothing of, because it was restarted at an unlucky moment.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    kernel::AgentId,
    transfer::{Leg, Phase},
};
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
/// A leg that has begun may stand still for this long before its agent is asked again.
const STANDSTILL: TimeDelta = TimeDelta::seconds(30);

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
        for (phases, patience) in
            [(["dispatched", "staged"], PATIENCE), (["uploading", "downloading"], STANDSTILL)]
        {
            put_back_all(context, &phases, context.clock.now() - patience).await?;
        }
        Ok(false)
    }
}

async fn put_back_all(
    context: &Context,
    phases: &[&str],
    idle_since: DateTime<Utc>,
) -> Result<(), WorkerError> {
    let mut after = Uuid::nil();
    loop {
        let rows = queries::idle_transfers(&context.pool, phases, idle_since, after, BATCH).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = last.id;
        for row in &rows {
            put_back(context, row).await?;
        }
    }
}

async fn put_back(context: &Context, row: &TransferRow) -> Result<(), WorkerError> {
    let Some(leg) = requested_leg(row).or(standing_leg(row)) else { return Ok(()) };
    let agent = match leg {
        Leg::Upload => row.source_agent_id,
        Leg::Download => row.destination_agent_id,
    };
    if standing_leg(row).is_some() && !knows_its_work(context, agent).await? {
        return Ok(());
    }
    let attempt = row.attempts.unsigned_abs();
    if context.mailbox.holds(AgentId(agent), &mail_key(row.number, attempt, leg)).await? {
        return Ok(());
    }
    tracing::info!(transfer = row.number, attempt, "a request is left in its mailbox again");
    post_request(context, row, attempt, leg).await
}

/// The leg that an agent has begun.
fn standing_leg(row: &TransferRow) -> Option<Leg> {
    match row.known_phase() {
        Phase::Uploading => Some(Leg::Upload),
        Phase::Downloading => Some(Leg::Download),
        _ => None,
    }
}

/// Whether the agent is there and recognises a request that it has had before. One that is away is asked what it works on
/// when it comes back.
async fn knows_its_work(context: &Context, agent: Uuid) -> Result<bool, WorkerError> {
    let agent = queries::agent_by_id(&context.pool, agent).await?;
    Ok(agent.is_some_and(|agent| agent.session.is_some() && !agent.capabilities.is_empty()))
}
