//! Forgets outcomes of commands that nobody will ask for again.

use std::time::Duration;

use chrono::TimeDelta;

use crate::{Context, Worker, WorkerError};

/// Senders give up after seconds; idempotent requests are repeated within a day.
const KEEP: TimeDelta = TimeDelta::days(3);
/// Rows deleted at once.
const BATCH: i64 = 10_000;

/// The housekeeping.
#[derive(Debug)]
pub struct Housekeeping;

impl Worker for Housekeeping {
    const NAME: &'static str = "housekeeping";

    fn period(&self) -> Duration {
        Duration::from_secs(600)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let deleted = sqlx::query(
            "DELETE FROM command_outcomes WHERE command_id IN (
                SELECT command_id FROM command_outcomes WHERE recorded_at < $1 LIMIT $2)",
        )
        .bind(context.clock.now() - KEEP)
        .bind(BATCH)
        .execute(&context.pool)
        .await?;
        Ok(deleted.rows_affected() as i64 == BATCH)
    }
}
