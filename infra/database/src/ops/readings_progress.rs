//! How far the log of datapoints has been read for subscribers to readings.

use chrono::{DateTime, NaiveDate, Utc};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::PgPool;

/// Start of the subscription to readings, and the place up to which the log has been read for it.
#[derive(Debug, Clone, Copy, FromRow)]
pub struct ReadingsProgress {
    /// When the first subscription was made.
    pub since: DateTime<Utc>,
    /// Position in the log; none before the first step, like the two below.
    pub position: Option<i64>,
    /// The day of the row there.
    pub day: Option<NaiveDate>,
    /// Points up to there.
    pub total: Option<i64>,
}

/// The progress, if there is a subscription.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn readings_progress(pool: &PgPool) -> Result<Option<ReadingsProgress>, sqlx::Error> {
    sqlx::query_as("SELECT since, position, day, total FROM ops.readings_wanted").fetch_optional(pool).await
}

/// Notes that there is a subscription since `since`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn begin(pool: &PgPool, since: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO ops.readings_wanted (since) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(since)
        .execute(pool)
        .await
        .map(drop)
}

/// Notes that there is no subscription.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn end(pool: &PgPool) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.readings_wanted").execute(pool).await.map(drop)
}

/// Stores how far the log need not be read again. Another process may have read further.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn advance(
    pool: &PgPool,
    since: DateTime<Utc>,
    position: i64,
    day: NaiveDate,
    total: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE ops.readings_wanted SET position = $1, day = $2, total = $3
          WHERE since = $4 AND (position IS NULL OR position < $1)",
    )
    .bind(position)
    .bind(day)
    .bind(total)
    .bind(since)
    .execute(pool)
    .await
    .map(drop)
}
