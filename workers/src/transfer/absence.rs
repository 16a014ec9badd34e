//! Records the absence of agents that have been without a session for a minute.
//!
//! Reads: `read.agents`, by the database's clock. Writes: `ReportAbsence`, from which the fan-out of webhooks makes
//! `agent.offline`. The aggregate ignores a report of an agent that has connected again. After a crash the next step reports
//! the same; the aggregate records it once.

use std::time::Duration;

use chrono::TimeDelta;
use signalbox_domain::transfer::{ABSENCE_SECONDS, Agent, AgentCommand};
use signalbox_projections::transfer::queries;

use crate::{Context, Worker, WorkerError};

/// The reporter.
#[derive(Debug)]
pub struct AbsenceReporter;

impl Worker for AbsenceReporter {
    const NAME: &'static str = "absence-reporter";

    fn period(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let until = context.server_time().await? - TimeDelta::seconds(ABSENCE_SECONDS);
        for (agent, since) in queries::absent_agents(&context.pool, until).await? {
            let command = AgentCommand::ReportAbsence { since };
            let key = format!("absent since {}", since.to_rfc3339());
            context.send_if_still_due::<Agent>(Self::NAME, agent.0, &key, &command).await?;
        }
        Ok(false)
    }
}
