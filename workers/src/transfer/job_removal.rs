//! Deletes the jobs of deleted users: an owner alone sees, changes, and deletes a job, and these would run for ever.

use std::time::Duration;

use signalbox_domain::{
    identity::User,
    kernel::{Decider, Rejection, UserId},
    transfer::{Job, JobCommand},
};
use signalbox_event_store::state;
use signalbox_messaging::Wakeup;
use signalbox_projections::{identity, transfer};

use crate::{Context, Worker, WorkerError, failures::Failures};

/// Jobs of one step.
const BATCH: i64 = 100;

/// The removal of jobs.
#[derive(Debug, Default)]
pub struct JobRemoval {
    failures: Failures,
}

impl Worker for JobRemoval {
    const NAME: &'static str = "job-removal";

    fn period(&self) -> Duration {
        Duration::from_secs(10)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == User::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let owners = transfer::queries::job_owners(&context.pool).await?;
        let missing = identity::queries::missing_users(&context.pool, &owners).await?;
        let paused = self.failures.paused();
        for owner in missing.into_iter().filter(|owner| !paused.contains(&owner.0)) {
            self.failures.settle(owner.0, delete_jobs(context, owner).await)?;
        }
        self.failures.report(context, Self::NAME).await?;
        Ok(false)
    }
}

/// Deletes jobs of `owner`, if the log says that the user is deleted: a read model may be empty while it is rebuilt.
async fn delete_jobs(context: &Context, owner: UserId) -> Result<(), WorkerError> {
    let user: User = state(&context.pool, owner.0).await.map_err(Rejection::from)?;
    if user.is_present() {
        return Ok(());
    }
    for job in transfer::queries::jobs_of(&context.pool, owner, BATCH).await? {
        let command = JobCommand::Delete;
        context.send_for_item::<Job>(JobRemoval::NAME, job.0, "owner deleted", &command).await?;
    }
    Ok(())
}
