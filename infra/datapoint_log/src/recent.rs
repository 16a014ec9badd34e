//! Values that their senders may repeat in other batches: each is appended once in 24 h.
//!
//! A new value is reserved for the batch that brings it, in a transaction before that of the log. If the process crashes in
//! between, the batch is known by its reserved values: the next sender of one of them appends it, under its id, which the log
//! takes once. So no value is lost that was reserved, and none is appended twice.

use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_database::delete_in_batches;
use sqlx::PgPool;
use uuid::Uuid;

use crate::Point;

/// How long a repeated value is recognised. Ids of batches are kept for longer.
const KEPT: TimeDelta = TimeDelta::hours(24);
/// Rows that one call of [`delete_in_batches`] deletes at most.
const FORGOTTEN_AT_ONCE: u64 = 1_000_000;

/// The batches that bring some values to the log.
#[derive(Debug, Default, PartialEq)]
pub struct Reserved {
    /// Values that are reserved for the new batch, in the order given.
    pub new: Vec<Point>,
    /// Earlier batches with some of the values that are not in the log, with all of their values.
    pub unfinished: Vec<(Uuid, Vec<Point>)>,
}

type Key = (i32, i64, u64);

/// Equal for values that PostgreSQL compares as equal: both zeros are one.
fn key(point: &Point) -> Key {
    (point.channel, point.time, (point.value + 0.0).to_bits())
}

/// Reserves those of `points` for `batch` that no batch of the last 24 h has.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn reserve(
    pool: &PgPool,
    batch: Uuid,
    points: &[Point],
    now: DateTime<Utc>,
) -> Result<Reserved, sqlx::Error> {
    let mut seen = HashSet::with_capacity(points.len());
    let mut given: Vec<(usize, &Point)> =
        points.iter().enumerate().filter(|(_, point)| seen.insert(key(point))).collect();
    // Transactions that reserve the same values lock them in the same order.
    given.sort_unstable_by_key(|(_, point)| key(point));
    let columns = Columns::of(&given);
    let mut new = reserve_new(pool, batch, &columns, now).await?;
    let unfinished = match new.len() == given.len() {
        true => Vec::new(),
        false => unfinished(pool, batch, &columns).await?,
    };
    let new = points.iter().filter(|point| new.remove(&key(point))).copied().collect();
    Ok(Reserved { new, unfinished })
}

/// Values as arrays, for a statement.
struct Columns {
    channels: Vec<i32>,
    times: Vec<i64>,
    values: Vec<f64>,
    places: Vec<i32>,
}

impl Columns {
    fn of(given: &[(usize, &Point)]) -> Self {
        Self {
            channels: given.iter().map(|(_, point)| point.channel).collect(),
            times: given.iter().map(|(_, point)| point.time).collect(),
            values: given.iter().map(|(_, point)| point.value).collect(),
            places: given.iter().map(|(place, _)| i32::try_from(*place).unwrap_or(i32::MAX)).collect(),
        }
    }
}

async fn reserve_new(
    pool: &PgPool,
    batch: Uuid,
    columns: &Columns,
    now: DateTime<Utc>,
) -> Result<HashSet<Key>, sqlx::Error> {
    let rows: Vec<(i32, i64, f64)> = sqlx::query_as(
        "INSERT INTO ops.recent_values AS r (channel, time, value, batch_id, place, reserved_at)
         SELECT g.channel, g.time, g.value, $5, g.place, $6
           FROM unnest($1::int[], $2::bigint[], $3::float8[], $4::int[]) AS g (channel, time, value, place)
         ON CONFLICT (channel, time, value) DO UPDATE
            SET batch_id = excluded.batch_id, place = excluded.place, reserved_at = excluded.reserved_at
          WHERE r.reserved_at < $7
         RETURNING r.channel, r.time, r.value",
    )
    .bind(&columns.channels)
    .bind(&columns.times)
    .bind(&columns.values)
    .bind(&columns.places)
    .bind(batch)
    .bind(now)
    .bind(now - KEPT)
    .fetch_all(pool)
    .await?;
    Ok(rows.into_iter().map(|(channel, time, value)| key(&Point { channel, time, value })).collect())
}

/// Batches but `batch` that have some of the values of `columns` and are not in the log.
async fn unfinished(
    pool: &PgPool,
    batch: Uuid,
    columns: &Columns,
) -> Result<Vec<(Uuid, Vec<Point>)>, sqlx::Error> {
    let others: Vec<Uuid> = sqlx::query_scalar(
        "SELECT DISTINCT r.batch_id
           FROM unnest($1::int[], $2::bigint[], $3::float8[]) AS g (channel, time, value)
           JOIN ops.recent_values r USING (channel, time, value) WHERE r.batch_id <> $4",
    )
    .bind(&columns.channels)
    .bind(&columns.times)
    .bind(&columns.values)
    .bind(batch)
    .fetch_all(pool)
    .await?;
    let missing: Vec<Uuid> = sqlx::query_scalar(
        "SELECT n.id FROM unnest($1::uuid[]) AS n (id)
          WHERE (SELECT b.position FROM datapoint_batches b WHERE b.batch_id = n.id LIMIT 1) IS NULL",
    )
    .bind(&others)
    .fetch_all(pool)
    .await?;
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(Uuid, i32, i64, f64)> = sqlx::query_as(
        "SELECT batch_id, channel, time, value FROM ops.recent_values WHERE batch_id = ANY($1)
          ORDER BY batch_id, place",
    )
    .bind(&missing)
    .fetch_all(pool)
    .await?;
    let mut batches = BTreeMap::<Uuid, Vec<Point>>::new();
    for (id, channel, time, value) in rows {
        batches.entry(id).or_default().push(Point { channel, time, value });
    }
    Ok(batches.into_iter().collect())
}

/// Forgets values that were reserved more than 24 h before `now`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_values(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    loop {
        let gone = delete_in_batches(pool, "ops.recent_values", "t.reserved_at < $1", now - KEPT).await?;
        if gone < FORGOTTEN_AT_ONCE {
            return Ok(());
        }
    }
}
