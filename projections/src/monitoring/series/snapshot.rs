//! Chunks and the tail of the log as they are at one moment.

use std::collections::HashSet;

use chrono::NaiveDate;
use signalbox_datapoint_log::{ChunkPoint, head, read_points_after};
use sqlx::{FromRow, PgConnection, PgPool, Postgres, Transaction};

use super::{Datapoint, SeriesError, fold::Batch};

/// Points that a query folds by itself at most; more wait for the projection.
const MAX_TAIL: i64 = 2_000_000;

/// How far the log has been folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub(super) struct Progress {
    pub(super) position: i64,
    pub(super) day: NaiveDate,
    pub(super) total: i64,
}

/// Waits until no rebuild and no other fold is under way, holding nothing else meanwhile.
pub(super) async fn begin_fold(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('fold.datapoints', 0))")
        .execute(connection)
        .await?;
    Ok(())
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

/// A transaction that sees one moment. Its first statement keeps the tables from being swapped by a rebuild, and what it
/// sees is settled after that: else it might find tables whose rows are younger than it, see
/// `a_rebuild_while_points_come_in_loses_none`.
pub(super) struct Snapshot(Transaction<'static, Postgres>);

/// What is in the log and not in the chunks yet.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// In no order; without those that were deleted since.
    pub(super) points: Vec<Datapoint>,
    /// Positions and indexes of points that were deleted since; the chunks may still hold them.
    pub(super) deleted: HashSet<(i64, u32)>,
    /// Channels and hours of those.
    pub(super) deleted_in: Vec<(i32, i32, (i64, u32))>,
}

impl Tail {
    pub(super) fn is_deleted(&self, point: &ChunkPoint) -> bool {
        !self.deleted.is_empty() && self.deleted.contains(&(point.position, point.index))
    }
}

impl Snapshot {
    pub(super) async fn open(pool: &PgPool) -> Result<Self, SeriesError> {
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE series.progress IN ACCESS SHARE MODE";
        Ok(Self(signalbox_database::begin(pool, begin).await?))
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.0
    }

    /// What the chunks do not hold yet.
    pub(super) async fn tail(&mut self) -> Result<Tail, SeriesError> {
        let progress = Progress::read(&mut self.0, "series").await?;
        let end = head(&mut *self.0).await?;
        if end.position == progress.position {
            return Ok(Tail::default());
        }
        if end.points - progress.total > MAX_TAIL {
            return Err(SeriesError::Behind(end.points - progress.total));
        }
        let rows = read_points_after(&mut *self.0, progress.end(), MAX_TAIL, i64::MAX).await?;
        let batch = Batch::of(&rows)?;
        let mut tail = Tail { points: batch.points().collect(), ..Tail::default() };
        for (key, changes) in &batch.chunks {
            for place in &changes.deleted {
                tail.deleted.insert(*place);
                // Points that came and went within the tail are in no chunk.
                if place.0 <= progress.position {
                    tail.deleted_in.push((key.channel, key.hour, *place));
                }
            }
        }
        Ok(tail)
    }

    pub(super) async fn close(self) -> Result<(), SeriesError> {
        Ok(self.0.commit().await?)
    }
}
