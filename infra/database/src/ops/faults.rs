//! The parts of the installation that do not work, for health, doctor, metrics and log entries.
//!
//! A process that notices a fault reports it again at least once a minute and clears it when the part works. Times are
//! PostgreSQL's, because a wrong clock is one of the faults. A time in the future was recorded while PostgreSQL's clock was ahead.

use std::time::Duration;

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::{PgExecutor, PgPool};

/// Longest reason that is stored, in characters.
const MAX_REASON: usize = 2_000;

/// A part that does not work.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct Fault {
    /// Kind and name, such as `projection.transfer`.
    pub part: String,
    /// Beginning of this fault, or its first report.
    pub since: DateTime<Utc>,
    /// Latest report of it.
    pub reported_at: DateTime<Utc>,
    /// States what happened and what to do about it. Contains no secrets.
    pub reason: String,
}

/// Reports that `part` does not work. A repeated report keeps the time of the first one.
///
/// # Errors
/// The database's error.
pub async fn report_fault(
    executor: impl PgExecutor<'_>,
    part: &str,
    reason: &str,
) -> Result<(), sqlx::Error> {
    report_fault_lasting(executor, part, reason, Duration::ZERO).await
}

/// Like [`report_fault`], for a fault that has lasted for `age` when it is reported first.
pub(crate) async fn report_fault_lasting(
    executor: impl PgExecutor<'_>,
    part: &str,
    reason: &str,
    age: Duration,
) -> Result<(), sqlx::Error> {
    // PostgreSQL refuses NUL in text.
    let reason: String = reason.chars().filter(|&c| c != '\0').take(MAX_REASON).collect();
    sqlx::query(
        "INSERT INTO ops.faults AS known (part, since, reported_at, reason)
         VALUES ($1, clock_timestamp() - make_interval(secs => $3), clock_timestamp(), $2)
         ON CONFLICT (part) DO UPDATE SET reported_at = excluded.reported_at, reason = excluded.reason,
            since = CASE WHEN known.since > clock_timestamp() THEN excluded.since ELSE known.since END",
    )
    .bind(part)
    .bind(reason)
    .bind(age.as_secs_f64())
    .execute(executor)
    .await?;
    Ok(())
}

/// Reports that `part` works. Returns false if it had no fault.
///
/// # Errors
/// The database's error.
pub async fn clear_fault(executor: impl PgExecutor<'_>, part: &str) -> Result<bool, sqlx::Error> {
    let cleared = sqlx::query("DELETE FROM ops.faults WHERE part = $1").bind(part).execute(executor).await?;
    Ok(cleared.rows_affected() > 0)
}

/// All faults, by part. One that was not reported for three minutes has lapsed, because its reporter is gone. Without a
/// check for a minute, the part `workers` does not work.
///
/// # Errors
/// The database's error.
pub async fn faults(executor: impl PgExecutor<'_>) -> Result<Vec<Fault>, sqlx::Error> {
    sqlx::query_as(
        "SELECT part, since, reported_at, reason FROM ops.faults
          WHERE reported_at BETWEEN clock_timestamp() - interval '3 minutes' AND clock_timestamp() + interval '1 minute'
          UNION ALL
         SELECT 'workers', checked_at, checked_at,
                'no process looks for parts that do not work: start one with the role workers'
           FROM ops.fault_checks
          WHERE checked_at NOT BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp() + interval '1 minute'
          ORDER BY part",
    )
    .fetch_all(executor)
    .await
}

/// Reports that `parts` work, and that faults were looked for.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_check(pool: &PgPool, parts: &[String]) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.faults WHERE part = ANY($1)").bind(parts).execute(pool).await?;
    sqlx::query(
        "DELETE FROM ops.faults
          WHERE reported_at NOT BETWEEN clock_timestamp() - interval '3 minutes' AND clock_timestamp() + interval '1 minute'",
    )
    .execute(pool)
    .await?;
    sqlx::query(
        "INSERT INTO ops.fault_checks (checked_at) VALUES (clock_timestamp())
         ON CONFLICT (one) DO UPDATE SET checked_at = excluded.checked_at",
    )
    .execute(pool)
    .await?;
    Ok(())
}

/// Parts and starts of the faults that have an entry in the log for people.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn fault_entries(pool: &PgPool) -> Result<Vec<(String, DateTime<Utc>)>, sqlx::Error> {
    sqlx::query_as("SELECT part, since FROM ops.fault_entries ORDER BY part").fetch_all(pool).await
}

/// The fault of `part` since `since` has an entry.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_fault_entry(pool: &PgPool, part: &str, since: DateTime<Utc>) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.fault_entries (part, since) VALUES ($1, $2)
         ON CONFLICT (part) DO UPDATE SET since = excluded.since",
    )
    .bind(part)
    .bind(since)
    .execute(pool)
    .await?;
    Ok(())
}

/// The recovery of `part` has an entry.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_fault_entry(pool: &PgPool, part: &str) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.fault_entries WHERE part = $1").bind(part).execute(pool).await?;
    Ok(())
}
