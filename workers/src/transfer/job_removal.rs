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
use uuid::Uuid;

use crate::{Context, Worker, WorkerError, failures::Failures, tried::Tried};

/// Jobs of one owner in one step.
const BATCH: i64 = 100;

/// The removal of jobs.
#[derive(Debug, Default)]
pub struct JobRemoval {
    /// Of owners and jobs.
    failures: Failures,
    tried: Tried<()>,
}

impl Worker for JobRemoval {
    const NAME: &'static str = "job-removal";

    fn period(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == User::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let owners = transfer::queries::job_owners(&context.pool).await?;
        let missing = identity::queries::missing_users(&context.pool, &owners).await?;
        let paused = self.failures.paused();
        let mut has_more = false;
        for owner in missing.into_iter().filter(|owner| !paused.contains(&owner.0)) {
            match is_deleted(context, owner).await {
                Ok(true) => has_more |= self.delete_jobs(context, owner, &paused).await?,
                Ok(false) => {}
                Err(error) => self.failures.settle(owner.0, Err(error))?,
            }
        }
        self.failures.report(context, Self::NAME).await?;
        Ok(has_more)
    }
}

impl JobRemoval {
    /// Deletes jobs of `owner`; returns whether there may be more.
    async fn delete_jobs(
        &self,
        context: &Context,
        owner: UserId,
        paused: &[Uuid],
    ) -> Result<bool, WorkerError> {
        let limit = BATCH + (paused.len() + self.tried.count()) as i64;
        let mut jobs = transfer::queries::jobs_of(&context.pool, owner, limit).await?;
        jobs.retain(|job| !paused.contains(&job.0) && !self.tried.holds(job.0, &()));
        for job in jobs.iter().take(BATCH as usize) {
            let command = JobCommand::Delete;
            let sent = context.send_for_item::<Job>(Self::NAME, job.0, "owner deleted", &command).await;
            if sent.is_ok() {
                self.tried.note(job.0, ());
            }
            // A job that cannot be deleted keeps no other one.
            self.failures.settle(job.0, sent.map(|_| ()))?;
        }
        Ok(jobs.len() as i64 >= BATCH)
    }
}

/// Whether the log says that `user` is deleted: a read model may be empty while it is rebuilt.
async fn is_deleted(context: &Context, user: UserId) -> Result<bool, WorkerError> {
    let user: User = state(&context.pool, user.0).await.map_err(Rejection::from)?;
    Ok(!user.is_present())
}
