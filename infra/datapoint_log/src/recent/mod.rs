//! Values that their senders may repeat in other batches: each is appended once in 24 h.
//!
//! A new value is reserved for the batch that brings it, in a transaction before that of the log. If the process crashes in
//! between, the batch is known by its reserved values: the next sender of one of them appends it, under its id, which the log
//! takes once. So no value is lost that was reserved, and none is appended twice.

mod cells;

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_database::delete_in_batches;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use self::cells::{Cell, Given, Part};
use crate::Point;

/// How long a repeated value is recognised. Ids of batches are kept for longer.
const KEPT: TimeDelta = TimeDelta::hours(24);
/// Rows that one call of [`delete_in_batches`] deletes at most.
const FORGOTTEN_AT_ONCE: u64 = 1_000_000;
/// Opens a reservation. The commit need not wait for the disk: that of the log does, which follows it, and what is on the disk then
/// includes it; without that, no sender had the answer that its values are recorded. A gateway that hangs, or whose network is gone,
/// holds its locks no longer than this: others wait for them.
const BEGIN: &str =
    "BEGIN; SET LOCAL synchronous_commit = off; SET LOCAL idle_in_transaction_session_timeout = '2s'";
/// Locks by which those that reserve values of the same cell wait for one another: the server has places for some thousand.
const LOCKS: i64 = 64;

/// The batches that bring some values to the log.
#[derive(Debug, Default, PartialEq)]
pub struct Reserved {
    /// Values that are reserved for the new batch, in the order given.
    pub new: Vec<Point>,
    /// Earlier batches with some of the values that are not in the log, with all of their values.
    pub unfinished: Vec<(Uuid, Vec<Point>)>,
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
    let given = Given::of(points);
    let parts = given.parts();
    // Most values are sent once, so that one statement does.
    if reserve_all(pool, batch, &parts, now).await? {
        return Ok(Reserved { new: given.new_points(), unfinished: Vec::new() });
    }
    reserve_new(pool, batch, (given, parts), points, now).await
}

/// Reserves all `parts`, unless others may have some of their values. Returns whether it has.
async fn reserve_all(
    pool: &PgPool,
    batch: Uuid,
    parts: &[Part],
    now: DateTime<Utc>,
) -> Result<bool, sqlx::Error> {
    let columns = Columns::of(parts);
    sqlx::query_scalar(
        "SELECT ops.reserve_cells($1, $2::bigint[], $3::int[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                                  $8::bytea[], $9, $10)",
    )
    .bind(batch)
    .bind(locks(parts))
    .bind(columns.channels)
    .bind(columns.slots)
    .bind(columns.first_times)
    .bind(columns.last_times)
    .bind(columns.bits)
    .bind(parts.iter().map(|part| part.row.as_slice()).collect::<Vec<_>>())
    .bind(now)
    .bind(now - KEPT)
    .fetch_one(pool)
    .await
}

/// Reserves those of `points`, which are `given` in `parts`, that no other batch has.
async fn reserve_new(
    pool: &PgPool,
    batch: Uuid,
    (mut given, mut parts): (Given<'_>, Vec<Part>),
    points: &[Point],
    now: DateTime<Utc>,
) -> Result<Reserved, sqlx::Error> {
    let mut others = BTreeSet::new();
    let mut transaction = signalbox_database::begin(pool, BEGIN).await?;
    let has_old_rows = lock(&mut transaction, &parts).await?;
    for (id, cell, row) in overlapping(&mut transaction, &parts, now).await? {
        for point in cell.points(&row) {
            if given.take(&point) {
                others.insert(id);
            }
        }
    }
    if has_old_rows {
        for (id, point) in old_values(&mut transaction, points, now).await? {
            if given.take(&point) {
                others.insert(id);
            }
        }
    }
    if !others.is_empty() {
        parts = given.parts();
    }
    insert(&mut transaction, batch, &parts, now).await?;
    transaction.commit().await?;
    others.remove(&batch);
    let unfinished =
        if others.is_empty() { Vec::new() } else { unfinished(pool, others.into_iter().collect()).await? };
    Ok(Reserved { new: given.new_points(), unfinished })
}

/// Makes others wait who reserve values of the cells of `parts`. Returns whether processes of the release before have reserved values
/// in their way.
async fn lock(connection: &mut PgConnection, parts: &[Part]) -> Result<bool, sqlx::Error> {
    let has_old_rows: Vec<bool> = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM ops.recent_values)
           FROM (SELECT pg_advisory_xact_lock(hashtextextended('recent.cells', 0) + n.lock)
                   FROM unnest($1::bigint[]) AS n (lock) OFFSET 0) AS locked",
    )
    .bind(locks(parts))
    .fetch_all(connection)
    .await?;
    Ok(has_old_rows.contains(&true))
}

/// The locks of the cells of `parts`, in the same order by all.
fn locks(parts: &[Part]) -> Vec<i64> {
    parts.iter().map(|part| lock_of(part.cell)).collect::<BTreeSet<_>>().into_iter().collect()
}

fn lock_of(cell: Cell) -> i64 {
    i64::from(cell.channels).wrapping_mul(31).wrapping_add(cell.slot).rem_euclid(LOCKS)
}

/// Rows of the last 24 h that may have values of `parts`: of the same cells, with some of their channels, in the span of their times.
async fn overlapping(
    connection: &mut PgConnection,
    parts: &[Part],
    now: DateTime<Utc>,
) -> Result<Vec<(Uuid, Cell, Vec<u8>)>, sqlx::Error> {
    let columns = Columns::of(parts);
    let rows: Vec<(Uuid, i32, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT r.batch_id, r.channels, r.slot, r.points
           FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[])
                    AS g (channels, slot, first_time, last_time, bits),
        LATERAL (SELECT * FROM ops.recent_cells c
                  WHERE c.channels = g.channels AND c.slot = g.slot AND c.last_time >= g.first_time
                    AND c.first_time <= g.last_time AND c.bits & g.bits <> 0 AND c.reserved_at >= $6
                 OFFSET 0) r",
    )
    .bind(columns.channels)
    .bind(columns.slots)
    .bind(columns.first_times)
    .bind(columns.last_times)
    .bind(columns.bits)
    .bind(now - KEPT)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|(id, channels, slot, row)| (id, Cell { channels, slot }, row)).collect())
}

/// Those of `points` that processes of the release before have reserved in the last 24 h, with their batches.
async fn old_values(
    connection: &mut PgConnection,
    points: &[Point],
    now: DateTime<Utc>,
) -> Result<Vec<(Uuid, Point)>, sqlx::Error> {
    let rows: Vec<(Uuid, i32, i64, f64)> = sqlx::query_as(
        "SELECT r.batch_id, r.channel, r.time, r.value
           FROM unnest($1::int[], $2::bigint[], $3::float8[]) AS g (channel, time, value)
           JOIN ops.recent_values r USING (channel, time, value) WHERE r.reserved_at >= $4",
    )
    .bind(points.iter().map(|point| point.channel).collect::<Vec<_>>())
    .bind(points.iter().map(|point| point.time).collect::<Vec<_>>())
    .bind(points.iter().map(|point| point.value).collect::<Vec<_>>())
    .bind(now - KEPT)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|(id, channel, time, value)| (id, Point { channel, time, value })).collect())
}

/// Parts as arrays, for a statement.
#[derive(Default)]
struct Columns {
    channels: Vec<i32>,
    slots: Vec<i64>,
    first_times: Vec<i64>,
    last_times: Vec<i64>,
    bits: Vec<i64>,
}

impl Columns {
    fn of(parts: &[Part]) -> Self {
        Self {
            channels: parts.iter().map(|part| part.cell.channels).collect(),
            slots: parts.iter().map(|part| part.cell.slot).collect(),
            first_times: parts.iter().map(|part| part.first_time).collect(),
            last_times: parts.iter().map(|part| part.last_time).collect(),
            bits: parts.iter().map(|part| part.bits).collect(),
        }
    }
}

async fn insert(
    connection: &mut PgConnection,
    batch: Uuid,
    parts: &[Part],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    if parts.is_empty() {
        return Ok(());
    }
    let columns = Columns::of(parts);
    let rows: Vec<&[u8]> = parts.iter().map(|part| part.row.as_slice()).collect();
    sqlx::query(
        "INSERT INTO ops.recent_cells (channels, slot, first_time, last_time, bits, batch_id, reserved_at, points)
         SELECT g.channels, g.slot, g.first_time, g.last_time, g.bits, $7, $8, g.points
           FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[])
                    AS g (channels, slot, first_time, last_time, bits, points)",
    )
    .bind(columns.channels)
    .bind(columns.slots)
    .bind(columns.first_times)
    .bind(columns.last_times)
    .bind(columns.bits)
    .bind(rows)
    .bind(batch)
    .bind(now)
    .execute(connection)
    .await?;
    Ok(())
}

/// Those of `batches` that are not in the log, with their values.
async fn unfinished(pool: &PgPool, batches: Vec<Uuid>) -> Result<Vec<(Uuid, Vec<Point>)>, sqlx::Error> {
    let missing: Vec<Uuid> = sqlx::query_scalar(
        "SELECT n.id FROM unnest($1::uuid[]) AS n (id)
          WHERE (SELECT b.position FROM datapoint_batches b WHERE b.batch_id = n.id LIMIT 1) IS NULL",
    )
    .bind(&batches)
    .fetch_all(pool)
    .await?;
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = BTreeMap::<Uuid, Vec<Point>>::new();
    let rows: Vec<(Uuid, i32, i64, Vec<u8>)> = sqlx::query_as(
        "SELECT batch_id, channels, slot, points FROM ops.recent_cells WHERE batch_id = ANY($1::uuid[])
          ORDER BY batch_id, channels, slot",
    )
    .bind(&missing)
    .fetch_all(pool)
    .await?;
    for (id, channels, slot, row) in rows {
        found.entry(id).or_default().extend(Cell { channels, slot }.points(&row));
    }
    let old_rows: Vec<(Uuid, i32, i64, f64)> = sqlx::query_as(
        "SELECT batch_id, channel, time, value FROM ops.recent_values WHERE batch_id = ANY($1::uuid[])
          ORDER BY batch_id, place",
    )
    .bind(&missing)
    .fetch_all(pool)
    .await?;
    for (id, channel, time, value) in old_rows {
        found.entry(id).or_default().push(Point { channel, time, value });
    }
    Ok(found.into_iter().collect())
}

/// Forgets values that were reserved more than 24 h before `now`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_values(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    for table in ["ops.recent_cells", "ops.recent_values"] {
        loop {
            let gone = delete_in_batches(pool, table, "t.reserved_at < $1", now - KEPT).await?;
            if gone < FORGOTTEN_AT_ONCE {
                break;
            }
        }
    }
    Ok(())
}
