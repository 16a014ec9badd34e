//! Roll-ups that outlive their values, in `ops.kept_rollups`: moved there in the transaction that removes the values, so a
//! window counts each value once. They are outside the schema that a rebuild replaces, and an archive carries them.

use std::collections::HashSet;

use chrono::NaiveDate;
use sqlx::{PgConnection, PgPool};

use super::{SeriesError, batch::Batch};

/// Roll-ups that one transaction deletes.
const AT_ONCE: i64 = 20_000;

/// Channels whose values on one day of the log are too old.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Day of the log.
    pub day: NaiveDate,
    /// Integers of the channels, in order.
    pub channels: Vec<i32>,
}

/// The values of a day that is older than they are kept: of all channels on the days before it, or of some on one day.
#[derive(Debug, Clone, Copy)]
pub(super) enum Retired<'a> {
    Before(NaiveDate),
    Of(NaiveDate, &'a [i32]),
}

/// Moves roll-ups from `series.rollups`. One of the same hour is there only if values have arrived on a day whose values were
/// gone, because a clock was set back; both are added up.
pub(super) async fn retire(connection: &mut PgConnection, retired: Retired<'_>) -> Result<(), SeriesError> {
    let (first, last, channels) = match retired {
        Retired::Before(day) => (None, day.pred_opt().unwrap_or(day), None),
        Retired::Of(day, channels) => (Some(day), day, Some(channels)),
    };
    sqlx::query(
        "DELETE FROM series.packed_hours p WHERE ($1::date IS NULL OR p.day >= $1) AND p.day <= $2
            AND ($3::int[] IS NULL OR p.channel = ANY($3))",
    )
    .bind(first)
    .bind(last)
    .bind(channels)
    .execute(&mut *connection)
    .await?;
    // PostgreSQL refuses sums beyond the greatest float, and halves of the least one.
    sqlx::query(
        "WITH moved AS (
             DELETE FROM series.rollups r WHERE ($1::date IS NULL OR r.day >= $1) AND r.day <= $2
                AND ($3::int[] IS NULL OR r.channel = ANY($3)) RETURNING r.*)
         INSERT INTO ops.kept_rollups AS k (channel, span, number, day, count, sum, sum_low, min, max, first_time, first_value,
             first_position, first_index, last_time, last_value, last_position, last_index)
         SELECT channel, span, number, day, count, sum, sum_low, min, max, first_time, first_value, first_position, first_index,
                last_time, last_value, last_position, last_index FROM moved
             ON CONFLICT (channel, span, number, day) DO UPDATE SET count = k.count + excluded.count,
                sum = CASE WHEN (k.sum > 0) <> (excluded.sum > 0) OR abs(k.sum) <= 1.7976931348623157e308 - abs(excluded.sum)
                           THEN k.sum + excluded.sum
                           WHEN k.sum > 0 THEN 1.7976931348623157e308
                           ELSE -1.7976931348623157e308 END,
                sum_low = k.sum_low + excluded.sum_low,
                min = least(k.min, excluded.min), max = greatest(k.max, excluded.max),
                (first_time, first_value, first_position, first_index) = (SELECT f.* FROM (VALUES
                    (k.first_time, k.first_value, k.first_position, k.first_index),
                    (excluded.first_time, excluded.first_value, excluded.first_position, excluded.first_index))
                    AS f (time, value, position, index) ORDER BY time, position, index LIMIT 1),
                (last_time, last_value, last_position, last_index) = (SELECT l.* FROM (VALUES
                    (k.last_time, k.last_value, k.last_position, k.last_index),
                    (excluded.last_time, excluded.last_value, excluded.last_position, excluded.last_index))
                    AS l (time, value, position, index) ORDER BY time DESC, position DESC, index DESC LIMIT 1)",
    )
    .bind(first)
    .bind(last)
    .bind(channels)
    .execute(connection)
    .await?;
    Ok(())
}

/// The first days before `oldest` that have such roll-ups, at most `limit`.
///
/// # Errors
/// [`SeriesError`].
pub async fn old_rollup_days(
    pool: &PgPool,
    oldest: NaiveDate,
    limit: usize,
) -> Result<Vec<NaiveDate>, SeriesError> {
    let mut days: Vec<NaiveDate> = Vec::new();
    while days.len() < limit {
        let next: Option<NaiveDate> = sqlx::query_scalar(
            "SELECT min(day) FROM ops.kept_rollups WHERE day < $1 AND ($2::date IS NULL OR day > $2)",
        )
        .bind(oldest)
        .bind(days.last())
        .fetch_one(pool)
        .await?;
        let Some(next) = next else { break };
        days.push(next);
    }
    Ok(days)
}

/// Deletes such roll-ups of the days up to `last`, some at a time.
///
/// # Errors
/// [`SeriesError`]; some may be gone then.
pub async fn drop_old_rollups(pool: &PgPool, last: NaiveDate) -> Result<(), SeriesError> {
    loop {
        let deleted = sqlx::query(
            "DELETE FROM ops.kept_rollups WHERE ctid = ANY(ARRAY(
                 SELECT ctid FROM ops.kept_rollups WHERE day <= $1 LIMIT $2))",
        )
        .bind(last)
        .bind(AT_ONCE)
        .execute(pool)
        .await?;
        if (deleted.rows_affected() as i64) < AT_ONCE {
            return Ok(());
        }
    }
}

/// Deletes some such roll-ups of channels that were deleted with their values; false when there are none.
pub(super) async fn drop_rollups_of_deleted(pool: &PgPool) -> Result<bool, SeriesError> {
    let deleted = sqlx::query(
        "DELETE FROM ops.kept_rollups WHERE ctid = ANY(ARRAY(
             SELECT k.place FROM (SELECT number FROM read.channels WHERE values_deleted) AS c
              CROSS JOIN LATERAL (SELECT r.ctid AS place FROM ops.kept_rollups r WHERE r.channel = c.number OFFSET 0) AS k
              LIMIT $1))",
    )
    .bind(AT_ONCE)
    .execute(pool)
    .await?;
    Ok(deleted.rows_affected() > 0)
}

/// Leaves out what is being removed, for a rebuild.
pub(super) async fn leave_out(connection: &mut PgConnection, batch: &mut Batch) -> Result<(), SeriesError> {
    let removals = recorded_removals(connection).await?;
    if !removals.is_empty() {
        let removed: HashSet<(NaiveDate, i32)> = removals
            .iter()
            .flat_map(|removal| removal.channels.iter().map(|channel| (removal.day, *channel)))
            .collect();
        batch.chunks.retain(|key, _| !removed.contains(&(key.day, key.channel)));
    }
    Ok(())
}

/// Moves the roll-ups of all recorded removals, before a rebuild replaces them.
pub(super) async fn retire_recorded(connection: &mut PgConnection) -> Result<(), SeriesError> {
    for removal in recorded_removals(&mut *connection).await? {
        retire(&mut *connection, Retired::Of(removal.day, &removal.channels)).await?;
    }
    Ok(())
}

async fn recorded_removals(connection: &mut PgConnection) -> Result<Vec<Removal>, SeriesError> {
    let rows: Vec<(NaiveDate, Vec<i32>)> =
        sqlx::query_as("SELECT day, channels FROM ops.value_removals").fetch_all(connection).await?;
    Ok(rows.into_iter().map(|(day, channels)| Removal { day, channels }).collect())
}
