//! Days of datapoints that are older than they are kept.

use signalbox_boxed::boxed;
use std::{collections::HashSet, time::Duration};

use chrono::NaiveDate;
use signalbox_database::{LEAP_INTERVAL, is_lock_conflict};
use signalbox_datapoint_log::drop_table_days;
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};
use tokio::time::sleep;

use super::{
    SeriesError,
    fold::renew_latest,
    follow::{FoldStep, step_in},
    incomplete::forget_skipped,
    kept::{Retired, retire},
    own_numbers::{await_own_numbers, is_kept, require_own_numbers},
    snapshot::{Progress, begin_fold, exclude_rebuild},
};

/// Attempts to drop days that are being read. Each is cancelled after a quarter of a second, because all readers of
/// datapoints queue behind it.
const ATTEMPTS: u32 = 15;
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Days that one transaction drops: each takes locks on a dozen tables and indexes, of which PostgreSQL has room for some thousands, and
/// moves its roll-ups.
const GROUP: usize = 5;
/// PostgreSQL's uptime between two runs, in seconds.
const RUN_INTERVAL: i64 = LEAP_INTERVAL;

/// A day of the log that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct LoggedDay {
    /// The day.
    pub day: NaiveDate,
    /// Datapoints that arrived on it, deleted ones included.
    pub points: i64,
}

/// The days before `oldest` that are still kept, oldest first. Days that are not folded or rolled up yet are left out.
///
/// The number of points of a day follows from its first and its last row, so it costs the same however many there
/// are. For days whose rows alternate, because a clock was wrong, the points between are counted for each of them.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn days_before(pool: &PgPool, oldest: NaiveDate) -> Result<Vec<LoggedDay>, SeriesError> {
    let days = sqlx::query_as(
        // Materialized: otherwise the condition may be put below the join, where the names of all tables are taken for days.
        "WITH days AS MATERIALIZED (
             SELECT DISTINCT to_date(right(c.relname, 8), 'YYYYMMDD') AS day
               FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
              WHERE i.inhparent IN ('datapoint_log'::regclass, 'datapoint_tombstones'::regclass, 'series.chunks'::regclass))
         SELECT d.day, coalesce(last.total - first.total + first.points, 0)::bigint AS points
           FROM days d
           LEFT JOIN LATERAL (SELECT total, points FROM datapoint_log l WHERE l.day = d.day
                               ORDER BY position LIMIT 1) AS first ON true
           LEFT JOIN LATERAL (SELECT total FROM datapoint_log l WHERE l.day = d.day
                               ORDER BY position DESC LIMIT 1) AS last ON true
          WHERE d.day < least($1, (SELECT day FROM series.progress), (SELECT min(day) FROM series.unrolled_days))
            AND (SELECT position FROM series.rollup_progress) = (SELECT position FROM series.progress) ORDER BY d.day",
    )
    .bind(oldest)
    .fetch_all(pool)
    .await?;
    Ok(days)
}

/// Whether [`drop_in_turn`] may drop days now.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn is_turn(pool: &PgPool) -> Result<bool, SeriesError> {
    let run: Option<(i64, i64)> = sqlx::query_as(
        "SELECT extract(epoch FROM clock_timestamp() - started)::bigint,
                CASE WHEN r.server_started = started THEN r.ran_at ELSE 0 END
           FROM ops.retention_runs r, pg_postmaster_start_time() AS started",
    )
    .fetch_optional(pool)
    .await?;
    Ok(run.is_none_or(|(uptime, ran_at)| is_interval_over(uptime, ran_at)))
}

/// Whether [`RUN_INTERVAL`] has passed at `uptime` since the run at `ran_at`. One that is later than the present was recorded while
/// PostgreSQL's clock was ahead: it counts as one at the server's start.
fn is_interval_over(uptime: i64, ran_at: i64) -> bool {
    let ran_at = if ran_at > uptime { 0 } else { ran_at };
    uptime - ran_at >= RUN_INTERVAL
}

/// Days that were dropped, and those that were to be and stay.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DroppedDays {
    /// Oldest first.
    pub days: Vec<LoggedDay>,
    /// The first one has values that a channel's own number keeps, and the log has no gaps.
    pub stayed: Vec<LoggedDay>,
    /// Partitions of tables.
    pub partitions: i32,
}

/// Like [`drop_old_days`], and records the run, so that the next one is an hour of PostgreSQL's uptime away. A run that fails or
/// drops nothing is not recorded.
///
/// # Errors
/// [`SeriesError`], as of [`drop_old_days`].
#[boxed]
pub async fn drop_in_turn(
    pool: &PgPool,
    oldest: NaiveDate,
    today: NaiveDate,
) -> Result<DroppedDays, SeriesError> {
    drop_days_of(pool, oldest, today, true).await
}

/// Drops the days before `oldest` from log and chunks, as far as no channel's own number keeps values of them on `today`. Days that
/// are not folded yet stay. While they are being read, it retries for half a minute.
///
/// # Errors
/// [`SeriesError`]; of more than five days, some may be gone then.
#[boxed]
pub async fn drop_old_days(
    pool: &PgPool,
    oldest: NaiveDate,
    today: NaiveDate,
) -> Result<DroppedDays, SeriesError> {
    drop_days_of(pool, oldest, today, false).await
}

async fn drop_days_of(
    pool: &PgPool,
    oldest: NaiveDate,
    today: NaiveDate,
    is_run: bool,
) -> Result<DroppedDays, SeriesError> {
    let due = days_before(pool, oldest).await?;
    let (mut count, mut partitions) = (0, 0);
    for group in due.chunks(GROUP) {
        await_own_numbers(pool).await?;
        let (dropped, tables) = drop_group(pool, group, today, is_run).await?;
        (count, partitions) = (count + dropped, partitions + tables);
        if dropped < group.len() {
            break;
        }
    }
    let (days, stayed) = due.split_at(count);
    Ok(DroppedDays { days: days.to_vec(), stayed: stayed.to_vec(), partitions })
}

async fn drop_group(
    pool: &PgPool,
    group: &[LoggedDay],
    today: NaiveDate,
    is_run: bool,
) -> Result<(usize, i32), SeriesError> {
    for _ in 1..ATTEMPTS {
        match drop_once(pool, group, today, is_run).await {
            Err(SeriesError::Database(error)) if is_lock_conflict(&error) => sleep(RETRY_DELAY).await,
            // A channel was changed a moment ago.
            Err(SeriesError::ChannelsBehind) => sleep(RETRY_DELAY).await,
            outcome => return outcome,
        }
    }
    drop_once(pool, group, today, is_run).await
}

/// Those of `group` before the first one with values that a channel's own number keeps. Asked in the transaction that drops them: since
/// they were found overdue, a number may have been raised, the more so as a person may have been asked in between.
async fn droppable<'a>(
    connection: &mut PgConnection,
    group: &'a [LoggedDay],
    today: NaiveDate,
) -> Result<&'a [LoggedDay], SeriesError> {
    require_own_numbers(&mut *connection).await?;
    for (place, LoggedDay { day, .. }) in group.iter().enumerate() {
        if is_kept(&mut *connection, today, *day).await? {
            return Ok(&group[..place]);
        }
    }
    Ok(group)
}

/// The droppable days of `group`, all of them or none; returns how many days and partitions. The tables that are read all the time are
/// locked at the end, and for as short as that takes.
async fn drop_once(
    pool: &PgPool,
    group: &[LoggedDay],
    today: NaiveDate,
    is_run: bool,
) -> Result<(usize, i32), SeriesError> {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    begin_fold(&mut transaction).await?;
    exclude_rebuild(&mut transaction).await?;
    // Deletions of these values that are still to be folded belong into the roll-ups.
    let mut days = HashSet::new();
    while step_in(&mut transaction, "series", &mut days).await? != FoldStep::Idle {}
    let progress = Progress::read(&mut transaction, "series").await?;
    let droppable = droppable(&mut transaction, group, today).await?;
    let Some(after) = droppable.last().and_then(|last| last.day.succ_opt()) else { return Ok((0, 0)) };
    let oldest = after.min(progress.day);
    if is_run {
        note_run(&mut transaction).await?;
    }
    let channels: Vec<i32> = sqlx::query_scalar("DELETE FROM series.latest WHERE day < $1 RETURNING channel")
        .bind(oldest)
        .fetch_all(&mut *transaction)
        .await?;
    renew_latest(&mut transaction, "series", &channels, oldest).await?;
    sqlx::query("DELETE FROM series.hours WHERE day < $1").bind(oldest).execute(&mut *transaction).await?;
    retire(&mut transaction, Retired::Before(oldest)).await?;
    // In the order in which others lock them.
    sqlx::query(
        "DELETE FROM ops.value_removals WHERE day = ANY(ARRAY(
             SELECT day FROM ops.value_removals WHERE day < $1 ORDER BY day FOR UPDATE))",
    )
    .bind(oldest)
    .execute(&mut *transaction)
    .await?;
    forget_skipped(&mut transaction, oldest).await?;
    let mut partitions = 0;
    for table in ["series.chunks", "datapoint_log", "datapoint_tombstones"] {
        partitions += drop_table_days(&mut *transaction, table, oldest).await?;
    }
    transaction.commit().await?;
    Ok((droppable.len(), partitions))
}

pub(super) async fn note_run(connection: &mut PgConnection) -> Result<(), SeriesError> {
    sqlx::query(
        "INSERT INTO ops.retention_runs AS r (server_started, ran_at)
         SELECT s, extract(epoch FROM clock_timestamp() - s)::bigint FROM pg_postmaster_start_time() AS s
             ON CONFLICT (one) DO UPDATE SET server_started = excluded.server_started, ran_at = excluded.ran_at",
    )
    .execute(connection)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_a_clock_that_was_set_right_keeps_no_later_one_waiting() {
        let (day, years) = (24 * 3600, 345_600_000);
        assert!(is_interval_over(day, years));
        assert!(!is_interval_over(RUN_INTERVAL - 1, years));
        assert!(!is_interval_over(day, day - RUN_INTERVAL + 1));
        assert!(is_interval_over(day, day - RUN_INTERVAL));
    }
}
