//! Ends the sessions of agents that nobody has heard for a while: polling agents that stopped asking, and all agents
//! of a gateway that died.

use std::time::Duration;

use chrono::TimeDelta;
use signalbox_domain::transfer::{Agent, AgentCommand};
use signalbox_projections::transfer::queries;

use crate::{Context, Worker, WorkerError};

/// Gateways note presence every 5 s, an agent that polls asks again within seconds of each answer.
const SILENCE: TimeDelta = TimeDelta::seconds(45);

/// The sweep.
#[derive(Debug)]
pub struct PresenceSweep;

impl Worker for PresenceSweep {
    const NAME: &'static str = "presence-sweep";

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let silent = queries::silent_agents(&context.pool, context.clock.now() - SILENCE).await?;
        for (agent, session) in silent {
            let reason = "nothing was heard of it".to_owned();
            let command = AgentCommand::Disconnect { session, reason };
            let key = format!("end {session}");
            context.send_if_still_due::<Agent>(Self::NAME, agent, &key, &command).await?;
        }
        Ok(false)
    }
}
