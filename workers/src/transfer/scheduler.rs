//! Starts jobs at their times.
//!
//! Reads the jobs that are due, sends `Request` for a transfer whose key follows from job and firing, so that any
//! number of schedulers make exactly one transfer per firing. Firings missed while the service was down are made up
//! for by one run, unless they are too old.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    kernel::TransferId,
    transfer::{Job, JobCommand, NewTransfer, Overlap, Schedule, SkipReason, Transfer, TransferCommand},
};
use signalbox_projections::transfer::{JobRow, queries};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError, failures::Failures, tried::Tried};

/// Jobs of one step.
const BATCH: i64 = 100;

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    /// How late a firing may be.
    catch_up: TimeDelta,
    failures: Failures,
    tried: Tried<Option<DateTime<Utc>>>,
}

impl Scheduler {
    /// One for the limits of `config`.
    pub fn new(config: &signalbox_config::Transfer) -> Self {
        let catch_up = TimeDelta::seconds(i64::from(config.catch_up_seconds));
        Self { catch_up, failures: Failures::default(), tried: Tried::default() }
    }
}

impl Worker for Scheduler {
    const NAME: &'static str = "scheduler";

    fn period(&self) -> Duration {
        Duration::from_millis(200)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let now = context.server_time().await?;
        let paused = self.failures.paused();
        let limit = BATCH + (paused.len() + self.tried.count()) as i64;
        let mut due = queries::due_jobs(&context.pool, now, limit).await?;
        due.retain(|job| !paused.contains(&job.id.0) && !self.tried.holds(job.id.0, &job.next_run));
        for job in due.iter().take(BATCH as usize) {
            let fired = fire(context, self.catch_up, job, now).await;
            if fired.is_ok() {
                self.tried.note(job.id.0, job.next_run);
            }
            // A job that cannot be started keeps no other job waiting.
            self.failures.settle(job.id.0, fired)?;
        }
        self.failures.report(context, Self::NAME).await?;
        // A job that was started is due until the read model shows it; the same firing is the same command until then.
        Ok(false)
    }
}

async fn fire(
    context: &Context,
    catch_up: TimeDelta,
    job: &JobRow,
    now: DateTime<Utc>,
) -> Result<(), WorkerError> {
    let spec = job.settings.to_spec()?;
    let (Some(schedule), Some(due)) = (&spec.schedule, job.next_run) else { return Ok(()) };
    let firing = latest_firing(schedule, due, now);
    let transfer = TransferId(Uuid::new_v5(&job.id.0, firing.to_rfc3339().as_bytes()));
    if now - firing > catch_up {
        return skip(context, job, firing, SkipReason::TooLate).await;
    }
    if spec.overlap == Overlap::Skip && queries::job_is_busy(&context.pool, job.id, transfer).await? {
        // The one that is running may be this very firing, started by another scheduler.
        if queries::transfer_by_id(&context.pool, transfer).await?.is_some() {
            return Ok(());
        }
        return skip(context, job, firing, SkipReason::Overlap).await;
    }
    let new = NewTransfer::of_job(job.reference(), job.owner_id, &spec, Some(firing));
    let command = TransferCommand::Request(new);
    // A firing starts a trace: no event in the log caused it.
    context.send_for_item::<Transfer>(Scheduler::NAME, transfer.0, "fire", &command).await?;
    Ok(())
}

/// Of the firings from `due` to `now`, the latest: one run makes up for all that were missed.
fn latest_firing(schedule: &Schedule, due: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    schedule.latest_until(now).filter(|latest| *latest >= due).unwrap_or(due)
}

async fn skip(
    context: &Context,
    job: &JobRow,
    scheduled_for: DateTime<Utc>,
    reason: SkipReason,
) -> Result<(), WorkerError> {
    let key = format!("skip {}", scheduled_for.to_rfc3339());
    let command = JobCommand::SkipFiring { scheduled_for, reason };
    context.send_for_item::<Job>(Scheduler::NAME, job.id.0, &key, &command).await?;
    Ok(())
}
