use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::PgPool;

use crate::head;

/// An end of the log, as it is or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogEnd {
    /// Position of the last row.
    pub position: i64,
    /// The day of that row, or an earlier one.
    pub day: NaiveDate,
    /// Points up to there.
    pub points: i64,
}

#[derive(Debug, FromRow)]
struct Probe {
    recorded_at: DateTime<Utc>,
    points: i32,
    total: i64,
}

/// The end of the log as it was at `time`, found by halving: clocks that differ may put rows around it on the wrong side.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn end_at(pool: &PgPool, time: DateTime<Utc>) -> Result<LogEnd, sqlx::Error> {
    let day = time.date_naive() - TimeDelta::days(1);
    let end = head(pool).await?;
    // Rows up to `before` are older than `time`, or were dropped; those from `after` on are not.
    let (mut before, mut after, mut points) = (0, end.position + 1, end.points);
    while before + 1 < after {
        let middle = before + (after - before) / 2;
        match probe(pool, middle, day).await? {
            Some(row) if row.recorded_at >= time => {
                (after, points) = (middle, row.total - i64::from(row.points))
            }
            _ => before = middle,
        }
    }
    Ok(LogEnd { position: before, day, points })
}

async fn probe(pool: &PgPool, position: i64, day: NaiveDate) -> Result<Option<Probe>, sqlx::Error> {
    sqlx::query_as("SELECT recorded_at, points, total FROM datapoint_log WHERE position = $1 AND day >= $2")
        .bind(position)
        .bind(day)
        .fetch_optional(pool)
        .await
}
