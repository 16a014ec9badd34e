//! Ends attempts in which nothing moves any more.
//!
//! A leg is taken up again after `stall_seconds` without progress when its agent is away, has connected again without naming
//! the leg, or lists no capabilities and has ended the leg's HTTP body; otherwise after ten times as long. An agent of the
//! FileFlux family does not repeat a report that was lost over polling. Its upload is concluded from the complete file that
//! is staged, its download when the destination's TCP acknowledged all bytes, the agent used or closed that connection
//! afterwards, and then polled in the same session: the gateways note this in `ops.transfer_legs`.
//!
//! Reads: the versions of legs in progress in `read.transfers`. A leg stands still for as long as this process has
//! seen one version of its transfer, by the process's monotonic time: times recorded elsewhere would make each leg
//! stall where two clocks differ. After a restart of the worker that time starts again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use signalbox_domain::{
    kernel::TransferId,
    transfer::{Leg, Phase, Transfer, TransferCommand},
};
use signalbox_projections::transfer::{
    AgentRow, TransferRow,
    queries::{self, LegRow},
};

use crate::{Context, Worker, WorkerError};

/// Transfers that are read at once.
const BATCH: usize = 500;
/// A leg is concluded without its agent's report after this.
const CONCLUDE: Duration = Duration::from_secs(10);
/// Factor by which a connected agent may take longer than an absent one.
const CONNECTED: u32 = 10;

/// The sweep.
#[derive(Debug)]
pub struct StallSweep {
    /// How long the leg of an agent that is away may stand still.
    limit: Duration,
    seen: Mutex<Seen>,
}

/// Transfers with a leg in progress: their version, and since when this process has seen it.
type Seen = HashMap<TransferId, (i64, Duration)>;

impl Worker for StallSweep {
    const NAME: &'static str = "stall-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let versions = queries::versions_in(&context.pool, &["uploading", "downloading"]).await?;
        let idle = self.idle(&versions, context.clock.monotonic(), CONCLUDE.min(self.limit));
        for batch in idle.chunks(BATCH) {
            let idle: HashMap<_, _> = batch.iter().copied().collect();
            let ids: Vec<_> = idle.keys().copied().collect();
            for row in queries::transfers_by_id(&context.pool, &ids).await? {
                if let Some((version, idle)) = idle.get(&row.id)
                    && row.version == *version
                {
                    self.judge(context, &row, *idle).await?;
                }
            }
        }
        Ok(false)
    }
}

impl StallSweep {
    /// One for the limits of `config`.
    pub fn new(config: &signalbox_config::Transfer) -> Self {
        Self { limit: Duration::from_secs(config.stall_seconds.into()), seen: Mutex::default() }
    }

    async fn judge(&self, context: &Context, row: &TransferRow, idle: Duration) -> Result<(), WorkerError> {
        let phase = row.phase.known()?;
        let (leg, agent) = match phase {
            Phase::Uploading => (Leg::Upload, row.source_agent_id),
            _ => (Leg::Download, Some(row.destination_agent_id)),
        };
        // The reconciler waits for the upload of an owner.
        let Some(agent) = agent else { return Ok(()) };
        let attempt = row.attempts.unsigned_abs();
        // Two commands with one key would be one: the second is not carried out.
        let (key, command) = match queries::agent_by_id(&context.pool, agent).await? {
            None => ("fail", TransferCommand::Fail { reason: "the agent has been deleted".to_owned() }),
            Some(agent) => {
                let seen = queries::leg(&context.pool, row.id, leg, row.attempts).await?;
                if is_over(row, &agent, leg, seen.as_ref()) {
                    ("conclude", TransferCommand::Conclude { attempt, leg })
                } else if let Some(reason) = stall(self.limit, row, &agent, seen.as_ref(), idle) {
                    ("end", TransferCommand::Stall { attempt, phase, reason })
                } else {
                    return Ok(());
                }
            }
        };
        let key = format!("{key} {}", row.version);
        context.send_if_still_due::<Transfer>(StallSweep::NAME, row.id.0, &key, &command).await?;
        Ok(())
    }

    /// Those of the transfers in progress (id, version) that have had their version for `limit` or longer, with version and time.
    fn idle(
        &self,
        versions: &[(TransferId, i64)],
        now: Duration,
        limit: Duration,
    ) -> Vec<(TransferId, (i64, Duration))> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = |id: &TransferId, version: i64| {
            seen.get(id).filter(|(known, _)| *known == version).map_or(now, |(_, since)| *since)
        };
        let present: Seen =
            versions.iter().map(|(id, version)| (*id, (*version, since(id, *version)))).collect();
        *seen = present;
        let idle = seen.iter().map(|(id, (version, since))| (*id, (*version, now.saturating_sub(*since))));
        idle.filter(|(_, (_, idle))| *idle >= limit).collect()
    }
}

/// Whether the leg of a single file has ended, for an agent that may have lost its report.
fn is_over(row: &TransferRow, agent: &AgentRow, leg: Leg, seen: Option<&LegRow>) -> bool {
    let ended = match leg {
        Leg::Upload => row.file_count == 1,
        Leg::Download => {
            agent.polls() && seen.is_some_and(|seen| seen.polled && seen.arrived_in == agent.session)
        }
    };
    ended && !row.is_tree() && agent.capabilities.is_empty()
}

/// Why the attempt ends, if it has stood still for too long.
fn stall(
    limit: Duration,
    row: &TransferRow,
    agent: &AgentRow,
    seen: Option<&LegRow>,
    idle: Duration,
) -> Option<String> {
    let (limit, state) = if agent.session.is_none() {
        (limit, "is away")
    } else if is_disowned(row, agent, seen) {
        (limit, "has connected again")
    } else if agent.capabilities.is_empty() && seen.is_some_and(|seen| seen.body_ended) {
        (limit, "has ended the connection that carried the file")
    } else {
        (limit * CONNECTED, "is connected")
    };
    let seconds = idle.as_secs();
    (idle >= limit).then(|| format!("nothing moved for {seconds} s while agent {} {state}", agent.number))
}

/// Whether the agent has connected again since it took the leg, and has not named it.
fn is_disowned(row: &TransferRow, agent: &AgentRow, seen: Option<&LegRow>) -> bool {
    match seen.and_then(|seen| seen.session) {
        Some(session) => agent.session != Some(session),
        None => agent.connected_at > Some(row.active_at),
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_transfer_is_idle_while_its_version_stays() {
        let (sweep, limit) =
            (StallSweep { limit: CONCLUDE, seen: Mutex::default() }, Duration::from_secs(10));
        let [one, other] = [1, 2].map(|number| TransferId(Uuid::from_u128(number)));
        let at = |seconds, versions: &[(TransferId, i64)]| {
            let mut idle = sweep.idle(versions, Duration::from_secs(seconds), limit);
            idle.sort();
            idle.into_iter().map(|(id, (_, idle))| (id, idle.as_secs())).collect::<Vec<_>>()
        };
        assert_eq!(at(100, &[(one, 1), (other, 1)]), []);
        assert_eq!(at(109, &[(one, 1), (other, 2)]), []);
        assert_eq!(at(110, &[(one, 1), (other, 2)]), [(one, 10)]);
        assert_eq!(at(119, &[(one, 1), (other, 2)]), [(one, 19), (other, 10)]);
        // An agent that finished one leg and starts another is not idle.
        assert_eq!(at(130, &[(other, 2)]), [(other, 21)]);
        assert_eq!(at(131, &[(one, 1), (other, 3)]), []);
    }
}
