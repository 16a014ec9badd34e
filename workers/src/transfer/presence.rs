//! Ends the sessions of agents that send no heartbeat: polling agents that stopped polling, and all agents of a
//! gateway that crashed.
//!
//! Reads: `read.agents` and the presence that gateways note beside the log, by the database's clock. Writes:
//! `Disconnect`. A session whose presence was never noted gets the same time, by this process's monotonic clock.
//! After a restart of the worker that time starts again.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use signalbox_domain::{
    kernel::AgentId,
    transfer::{Agent, AgentCommand},
};
use signalbox_projections::transfer::queries;
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// Gateways note presence every 5 s; a polling agent polls again within seconds of each answer.
const SILENCE: Duration = Duration::from_secs(45);

/// The sweep.
#[derive(Debug, Default)]
pub struct PresenceSweep {
    /// Sessions without a noted presence, and the time of their first observation.
    unheard: Mutex<HashMap<Uuid, Instant>>,
}

impl Worker for PresenceSweep {
    const NAME: &'static str = "presence-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let found = queries::silent_agents(&context.pool, SILENCE.as_secs_f64()).await?;
        for (agent, session) in self.silent(&found, Instant::now()) {
            let reason = "nothing was heard of it".to_owned();
            let command = AgentCommand::Disconnect { session, reason };
            let key = format!("end {session}");
            context.send_if_still_due::<Agent>(Self::NAME, agent.0, &key, &command).await?;
        }
        Ok(false)
    }
}

impl PresenceSweep {
    /// Those of the sessions `found` (agent, session, whether a presence was noted) that have been silent for too long.
    fn silent(&self, found: &[(AgentId, Uuid, bool)], now: Instant) -> Vec<(AgentId, Uuid)> {
        let mut unheard = self.unheard.lock().unwrap_or_else(PoisonError::into_inner);
        unheard.retain(|known, _| found.iter().any(|(_, session, _)| session == known));
        let mut silent = Vec::new();
        for (agent, session, was_heard) in found {
            let since = *unheard.entry(*session).or_insert(now);
            if *was_heard || now.duration_since(since) >= SILENCE {
                silent.push((*agent, *session));
            }
        }
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_without_presence_is_given_time() {
        let (sweep, now) = (PresenceSweep::default(), Instant::now());
        let (agent, [new, old]) = (AgentId(Uuid::from_u128(1)), [2, 3].map(Uuid::from_u128));
        let found = [(agent, new, false), (agent, old, true)];
        assert_eq!(sweep.silent(&found, now), [(agent, old)]);
        assert_eq!(sweep.silent(&found[..1], now + SILENCE / 2), []);
        assert_eq!(sweep.silent(&found[..1], now + SILENCE), [(agent, new)]);
        // Its presence was noted meanwhile, and a restart of the gateway lost it.
        assert_eq!(sweep.silent(&[], now + SILENCE), []);
        assert_eq!(sweep.silent(&found[..1], now + SILENCE * 2), []);
    }
}
