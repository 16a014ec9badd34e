//! Chunks and the tail of the log as they are at one moment.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use signalbox_database::Class;
use signalbox_datapoint_log::{ChunkPoint, head, read_points_after};
use sqlx::{FromRow, PgConnection, PgPool, Postgres, Transaction};

use super::{Datapoint, SeriesError, batch::Batch, first_day_since, incomplete::note_skipped};

/// Limit of the points that a query folds by itself; beyond it, it waits for the projection.
const MAX_TAIL: i64 = 2_000_000;

const BEGIN: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE series.progress IN ACCESS SHARE MODE";

/// The lease that a rebuild holds.
pub(super) const REBUILD_LEASE: &str = "rebuild.datapoints";

/// How far the log has been folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub(super) struct Progress {
    pub(super) position: i64,
    pub(super) day: NaiveDate,
    pub(super) total: i64,
}

/// Waits until no rebuild and no other fold is in progress, holding nothing else meanwhile.
pub(super) async fn begin_fold(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('fold.datapoints', 0))")
        .execute(connection)
        .await?;
    Ok(())
}

/// Fails while a rebuild is in progress, and keeps the next one waiting until the transaction has ended. Shared: others that exclude
/// a rebuild do not exclude each other.
pub(super) async fn exclude_rebuild(connection: &mut PgConnection) -> Result<(), SeriesError> {
    let is_free: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_xact_lock_shared(hashtextextended($1, 0))")
            .bind(REBUILD_LEASE)
            .fetch_one(connection)
            .await?;
    if is_free { Ok(()) } else { Err(SeriesError::Rebuilding) }
}

impl Progress {
    pub(super) async fn read(connection: &mut PgConnection, schema: &str) -> Result<Self, sqlx::Error> {
        let sql = format!("SELECT position, day, total FROM {schema}.progress");
        sqlx::query_as(&sql).fetch_one(connection).await
    }

    pub(super) fn end(&self) -> (i64, NaiveDate, i64) {
        (self.position, self.day, self.total)
    }
}

/// A transaction with one snapshot. Its first statement locks the tables against the swap of a rebuild, and the
/// snapshot is taken after that: otherwise it might read tables whose rows are newer than the snapshot, see
/// `a_rebuild_while_points_come_in_loses_none`.
pub(super) struct Snapshot {
    transaction: Transaction<'static, Postgres>,
}

/// Points of the log that are not in the chunks yet.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// In no order; without those that were deleted since.
    pub(super) points: Vec<Datapoint>,
    /// Positions and indexes of points that were deleted since; the chunks may still hold them.
    pub(super) deleted: HashSet<(i64, u32)>,
    /// Channels and hours of those.
    pub(super) deleted_in: Vec<(i32, i32, (i64, u32))>,
    /// When the rows of `points` arrived, by position, in microseconds since 1970.
    pub(super) arrivals: HashMap<i64, i64>,
}

impl Tail {
    pub(super) fn is_deleted(&self, point: &ChunkPoint) -> bool {
        !self.deleted.is_empty() && self.deleted.contains(&(point.position, point.index))
    }
}

impl Snapshot {
    pub(super) async fn open(pool: &PgPool) -> Result<Self, SeriesError> {
        let transaction = signalbox_database::begin(pool, BEGIN).await?;
        Ok(Self { transaction })
    }

    /// One of an export's slices, which may take longer than other queries.
    pub(super) async fn open_for_export(pool: &PgPool) -> Result<Self, SeriesError> {
        let transaction = signalbox_database::begin_as(pool, Class::Export, BEGIN).await?;
        Ok(Self { transaction })
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Points that the chunks do not hold yet. `from` is the earliest requested measurement time, if that is bounded:
    /// unreadable rows that may hold points since then are counted for the answer.
    pub(super) async fn tail(&mut self, from: Option<i64>) -> Result<Tail, SeriesError> {
        let oldest = from.map_or(NaiveDate::MIN, first_day_since);
        let unreadable: Vec<(i64, NaiveDate)> =
            sqlx::query_as("SELECT position, day FROM ops.unreadable_rows")
                .fetch_all(&mut *self.transaction)
                .await?;
        let progress = Progress::read(&mut self.transaction, "series").await?;
        let is_meant = |(position, day): &(i64, NaiveDate)| *position <= progress.position && *day >= oldest;
        let skipped = unreadable.iter().filter(|row| is_meant(row)).count();
        note_skipped(skipped);
        let end = head(&mut *self.transaction).await?;
        if end.position == progress.position {
            return Ok(Tail::default());
        }
        if end.points - progress.total > MAX_TAIL {
            return Err(SeriesError::Behind(end.points - progress.total));
        }
        let rows = read_points_after(&mut self.transaction, progress.end(), MAX_TAIL, i64::MAX).await?;
        let batch = Batch::of(&rows);
        note_skipped(skipped + batch.skipped.iter().filter(|row| row.day >= oldest).count());
        let (points, arrivals) = (batch.points().collect(), batch.arrivals.clone());
        let mut tail = Tail { points, arrivals, ..Tail::default() };
        for (key, changes) in &batch.chunks {
            for place in &changes.deleted {
                tail.deleted.insert(*place);
                // Points that were added and deleted within the tail are in no chunk.
                if place.0 <= progress.position {
                    tail.deleted_in.push((key.channel, key.hour, *place));
                }
            }
        }
        Ok(tail)
    }

    pub(super) async fn close(self) -> Result<(), SeriesError> {
        Ok(self.transaction.commit().await?)
    }
}
