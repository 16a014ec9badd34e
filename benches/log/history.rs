//! When everything that follows from the log has followed.

use std::time::{Duration, Instant};

use sqlx::PgPool;

use crate::system::wait_until;

/// Folding, chaining and relaying a million events takes a while.
const TIMEOUT: Duration = Duration::from_secs(3600);

/// The condition to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The read models show the whole log.
    Folded,
    /// The hash chain, the index, the relay and the series of datapoints have the whole log too, and the workers, which
    /// would add to it, have cleaned up after what was cancelled.
    Quiet,
}

impl Until {
    fn statement(self) -> &'static str {
        match self {
            Self::Folded => {
                "SELECT count(*) >= 6 AND min(c.position) >= max(h.position) FROM read.checkpoints c, log_head h
                  WHERE h.log = 'events'"
            }
            Self::Quiet => {
                "SELECT h.position <= (SELECT coalesce(max(last_position), 0) FROM log_chain)
                    AND h.position <= (SELECT position FROM log_index_progress)
                    AND h.position <= (SELECT coalesce(max(position), 0) FROM ops.relay_checkpoint)
                    AND (SELECT position FROM log_head WHERE log = 'datapoints') <= (SELECT position FROM series.progress)
                    AND NOT EXISTS (SELECT FROM read.transfers WHERE status = 'cancelled' AND phase = 'done' AND NOT cleaned)
                   FROM log_head h WHERE h.log = 'events'"
            }
        }
    }
}

/// Waits; returns how many events of the log that was in a second.
pub async fn settle(pool: &PgPool, until: Until) -> anyhow::Result<f64> {
    let (start, head) = (Instant::now(), signalbox_event_store::head_position(pool).await?);
    let holds = || async move { Ok(sqlx::query_scalar(until.statement()).fetch_one(pool).await?) };
    wait_until(&format!("that all is {until:?}"), TIMEOUT, holds).await?;
    Ok(head as f64 / start.elapsed().as_secs_f64())
}
