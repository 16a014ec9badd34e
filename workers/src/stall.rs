//! Gives up attempts in which nothing moves any more.
//!
//! Three cases: the agent in the middle of a leg has gone away; it is there but has not moved anything for very long;
//! or it belongs to a family that does not repeat a lost report, and all bytes have demonstrably moved. The last one
//! is taken for the report.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    kernel::AgentId,
    transfer::{Arrival, Leg, Phase, Transfer, TransferCommand},
};
use signalbox_projections::transfer::{AgentRow, TransferRow, queries};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// Transfers looked at together.
const BATCH: i64 = 500;
/// A leg that is complete but unreported is taken for reported after this.
const EVIDENCE: TimeDelta = TimeDelta::seconds(10);
/// An agent that is there may be silent this many times longer than one that is away.
const PRESENT: i32 = 10;

/// The sweep.
#[derive(Debug)]
pub struct StallSweep;

impl Worker for StallSweep {
    const NAME: &'static str = "stall-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let now = context.clock.now();
        let mut after = Uuid::nil();
        loop {
            let phases = ["uploading", "downloading"];
            let rows = queries::idle_transfers(&context.pool, &phases, now - EVIDENCE, after, BATCH).await?;
            let Some(last) = rows.last() else { return Ok(false) };
            after = last.id;
            for row in &rows {
                judge(context, row, now).await?;
            }
        }
    }
}

async fn judge(context: &Context, row: &TransferRow, now: DateTime<Utc>) -> Result<(), WorkerError> {
    let leg = if row.known_phase() == Phase::Uploading { Leg::Upload } else { Leg::Download };
    let id = match leg {
        Leg::Upload => row.source_agent_id,
        Leg::Download => row.destination_agent_id,
    };
    let agent = queries::agent_by_id(&context.pool, id).await?;
    let idle = now - row.active_at;
    let command = match &agent {
        None => Some(TransferCommand::Fail { reason: "the agent has been deleted".to_owned() }),
        Some(agent) if is_evident(row, agent, leg) => Some(report_for(id, leg, row)),
        Some(agent) => stall(context, row, agent, idle),
    };
    let Some(command) = command else { return Ok(()) };
    let key = format!("end {}", row.version);
    context.send_if_still_due::<Transfer>(StallSweep::NAME, row.id, &key, &command).await?;
    Ok(())
}

/// Whether all bytes of the leg of a single file have moved, for an agent that may have lost its report.
fn is_evident(row: &TransferRow, agent: &AgentRow, leg: Leg) -> bool {
    let whole = match leg {
        Leg::Upload => row.file_count == 1,
        Leg::Download => row.size.is_some_and(|size| row.downloaded >= size),
    };
    whole && !row.is_tree() && agent.capabilities.is_empty()
}

fn report_for(agent: Uuid, leg: Leg, row: &TransferRow) -> TransferCommand {
    let arrival =
        Arrival { attempt: Some(row.attempts.unsigned_abs()), leg: Some(leg), ..Arrival::default() };
    TransferCommand::ReportComplete { agent: AgentId(agent), arrival }
}

fn stall(context: &Context, row: &TransferRow, agent: &AgentRow, idle: TimeDelta) -> Option<TransferCommand> {
    let limit = TimeDelta::seconds(i64::from(context.config.transfer.stall_seconds));
    let away = agent.session.is_none();
    let limit = if away { limit } else { limit * PRESENT };
    if idle < limit {
        return None;
    }
    let state = if away { "is away" } else { "is connected" };
    let reason = format!("nothing moved for {} s while agent {} {state}", idle.num_seconds(), agent.number);
    Some(TransferCommand::Stall { attempt: row.attempts.unsigned_abs(), phase: row.known_phase(), reason })
}
