//! Whether the numbers of days that channels have of their own are known as the log has them.
//!
//! They are read from the read model of channels. It may lag: after an import, while an event stops it, or because a number has
//! just been raised. Removal is permanent, so nothing is removed by an earlier number.

use std::time::Duration;

use chrono::NaiveDate;
use signalbox_domain::{kernel::Decider, monitoring::Channel};
use sqlx::{PgExecutor, PgPool};
use tokio::time::sleep;

use super::SeriesError;
use crate::{Lack, Projection, lack, monitoring::MonitoringProjection};

/// A read model that is behind usually has caught up by then.
const ATTEMPTS: u32 = 10;
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Fails while they are not known. Otherwise a later statement shows them.
pub(super) async fn require_own_numbers(executor: impl PgExecutor<'_>) -> Result<(), SeriesError> {
    match lack(executor, MonitoringProjection::NAME, Channel::TYPE).await? {
        None => Ok(()),
        Some(Lack::Behind) => Err(SeriesError::ChannelsBehind),
        Some(Lack::SetAside) => Err(SeriesError::ChannelsSetAside),
    }
}

/// Waits some seconds until they are known, and fails when they are not.
pub(super) async fn await_own_numbers(pool: &PgPool) -> Result<(), SeriesError> {
    for _ in 1..ATTEMPTS {
        match require_own_numbers(pool).await {
            Err(SeriesError::ChannelsBehind) => sleep(RETRY_DELAY).await,
            outcome => return outcome,
        }
    }
    require_own_numbers(pool).await
}

/// Whether a channel has values on `day` that its own number keeps on `today`.
pub(super) async fn is_kept(
    executor: impl PgExecutor<'_>,
    today: NaiveDate,
    day: NaiveDate,
) -> Result<bool, SeriesError> {
    let is_kept = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM read.channels c JOIN series.rollups r ON r.channel = c.number AND r.day = $2::date AND r.span = 24
           WHERE c.retention_days = 0 OR $2::date >= $1::date - c.retention_days)",
    )
    .bind(today)
    .bind(day)
    .fetch_one(executor)
    .await?;
    Ok(is_kept)
}
