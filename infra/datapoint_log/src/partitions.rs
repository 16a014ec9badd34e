//! Partitions of one day each: made ahead, and dropped as a whole when they are too old.

use chrono::{NaiveDate, TimeDelta};
use signalbox_boxed::boxed;
use sqlx::PgPool;

/// Tables of the log that are partitioned by day.
const TABLES: [&str; 3] = ["datapoint_log", "datapoint_batches", "datapoint_tombstones"];
/// Days that are made ahead.
const AHEAD: i64 = 3;
/// Days after which a batch is no longer recognised.
const BATCH_DAYS: i64 = 2;

/// Makes the partitions of `today` and the next days.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn add_days(pool: &PgPool, today: NaiveDate) -> Result<(), sqlx::Error> {
    for table in TABLES {
        for ahead in 0..=AHEAD {
            add_day(pool, table, today + TimeDelta::days(ahead)).await?;
        }
    }
    Ok(())
}

/// Makes the partition of `day` for `table`, unless it is there.
///
/// # Errors
/// The database's error.
pub async fn add_day(
    executor: impl sqlx::PgExecutor<'_>,
    table: &str,
    day: NaiveDate,
) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT add_day($1::regclass, $2)").bind(table).bind(day).execute(executor).await?;
    Ok(())
}

/// Drops the days before `oldest` of the log and of its tombstones; returns the number of dropped partitions. Rows that are not
/// folded yet must be of `oldest` or later.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn drop_days(pool: &PgPool, oldest: NaiveDate) -> Result<i32, sqlx::Error> {
    let mut dropped = 0;
    for table in ["datapoint_log", "datapoint_tombstones"] {
        dropped += drop_table_days(pool, table, oldest).await?;
    }
    Ok(dropped)
}

/// Drops the ids of batches that are too old to be repeated.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn drop_old_batches(pool: &PgPool, today: NaiveDate) -> Result<i32, sqlx::Error> {
    drop_table_days(pool, "datapoint_batches", today - TimeDelta::days(BATCH_DAYS)).await
}

/// Drops the days of `table` before `oldest`; returns how many.
///
/// # Errors
/// The database's error.
pub async fn drop_table_days(
    executor: impl sqlx::PgExecutor<'_>,
    table: &str,
    oldest: NaiveDate,
) -> Result<i32, sqlx::Error> {
    sqlx::query_scalar("SELECT drop_days($1::regclass, $2)")
        .bind(table)
        .bind(oldest)
        .fetch_one(executor)
        .await
}
