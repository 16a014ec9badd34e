//! Deletes outcomes of commands and notes on legs of transfers that are too old to be needed.

use std::time::Duration;

use chrono::TimeDelta;
use signalbox_database::delete_in_batches;
use signalbox_projections::transfer::queries;

use crate::{Context, Worker, WorkerError};

/// Senders give up after seconds; idempotent requests are repeated within a day.
const KEEP: TimeDelta = TimeDelta::days(3);

/// The housekeeping.
#[derive(Debug)]
pub struct Housekeeping;

impl Worker for Housekeeping {
    const NAME: &'static str = "housekeeping";

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let Some(now) = context.sweep_time().await? else { return Ok(false) };
        let pool = &context.pool;
        let outcomes = delete_in_batches(pool, "command_outcomes", "t.recorded_at < $1", now - KEEP).await;
        queries::forget_old_legs(pool, now).await?;
        outcomes?;
        Ok(false)
    }
}
