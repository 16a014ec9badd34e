//! Chunks and the tail of the log as they are at one moment.

use std::{
    collections::{HashMap, HashSet},
    sync::LazyLock,
};

use chrono::NaiveDate;
use signalbox_database::{BY_KEY, Class};
use signalbox_datapoint_log::{ChunkPoint, read_points_after};
use signalbox_from_row::FromRow;
use sqlx::{Executor, PgConnection, PgPool, Postgres, Transaction};

use super::{Datapoint, SeriesError, batch::Batch, first_day_since, incomplete::note_skipped};

/// Limit of the points that a query folds by itself; beyond it, it waits for the projection.
const MAX_TAIL: i64 = 2_000_000;

const BEGIN: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; LOCK TABLE series.progress IN ACCESS SHARE MODE";

/// The same for statements that find rows by key: to plan them anew for each request takes longer than to carry them out.
static BEGIN_BY_KEY: LazyLock<String> = LazyLock::new(|| {
    let settings = BY_KEY.map(|(name, value)| format!("; SET LOCAL {name} = {value}"));
    format!("{BEGIN}{}", settings.concat())
});

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

    /// Moves one that has not begun to the first row of the log: retention may have dropped the days before, here or where the log was
    /// exported.
    pub(super) async fn begin(connection: &mut PgConnection, schema: &str) -> Result<(), sqlx::Error> {
        let sql = format!(
            "UPDATE {schema}.progress p SET position = l.position - 1, total = l.total - l.points
               FROM (SELECT position, total, points FROM datapoint_log ORDER BY position LIMIT 1) l
              WHERE p.position = 0 AND l.position > 1"
        );
        connection.execute(sql.as_str()).await.map(drop)
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
    standing: Standing,
}

/// The state that every query asks for, read by one statement.
#[derive(Debug, Clone, FromRow)]
pub(super) struct Standing {
    #[row(flatten)]
    progress: Progress,
    /// Up to where the roll-ups are folded, and up to where packs are of these.
    rolled: i64,
    packed: i64,
    /// The newest row of the log, and the points up to it.
    newest: i64,
    points: i64,
    /// The days of the log whose points have no roll-ups.
    pub(super) unrolled: Vec<NaiveDate>,
    /// Whether there are roll-ups whose values are gone.
    pub(super) has_kept: bool,
    /// Rows of the log that cannot be read, by position and day.
    unreadable: Vec<i64>,
    unreadable_days: Vec<NaiveDate>,
}

impl Standing {
    async fn read(connection: &mut PgConnection) -> Result<Self, sqlx::Error> {
        // The newest row first: the versions before it may be many, see ADR 30.
        sqlx::query_as(
            "SELECT p.position, p.day, p.total, r.position AS rolled, k.position AS packed, h.position AS newest, h.points,
                    ARRAY(SELECT day FROM series.unrolled_days) AS unrolled,
                    EXISTS (SELECT FROM ops.kept_rollups) AS has_kept,
                    ARRAY(SELECT position FROM ops.unreadable_rows ORDER BY position) AS unreadable,
                    ARRAY(SELECT day FROM ops.unreadable_rows ORDER BY position) AS unreadable_days
               FROM series.progress p CROSS JOIN series.rollup_progress r CROSS JOIN series.pack_progress k
              CROSS JOIN (SELECT position, points FROM log_head WHERE log = 'datapoints'
                           ORDER BY position DESC LIMIT 1) AS h",
        )
        .fetch_one(connection)
        .await
    }

    /// Whether the roll-ups belong to the chunks as they are folded.
    pub(super) fn has_current_rollups(&self) -> bool {
        self.rolled == self.progress.position
    }

    /// Whether the packs belong to these roll-ups.
    pub(super) fn has_current_packs(&self) -> bool {
        self.packed == self.progress.position
    }

    /// How many rows cannot be read that may hold points since `oldest`.
    fn skipped(&self, oldest: NaiveDate) -> usize {
        let rows = self.unreadable.iter().zip(&self.unreadable_days);
        rows.filter(|(position, day)| **position <= self.progress.position && **day >= oldest).count()
    }
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
        Self::of(signalbox_database::begin(pool, BEGIN).await?).await
    }

    /// For statements that find a few rows by key.
    pub(super) async fn open_by_key(pool: &PgPool) -> Result<Self, SeriesError> {
        Self::of(signalbox_database::begin(pool, BEGIN_BY_KEY.as_str()).await?).await
    }

    /// One of an export's slices, which may take longer than other queries.
    pub(super) async fn open_for_export(pool: &PgPool) -> Result<Self, SeriesError> {
        Self::of(signalbox_database::begin_as(pool, Class::Export, BEGIN).await?).await
    }

    async fn of(mut transaction: Transaction<'static, Postgres>) -> Result<Self, SeriesError> {
        let standing = Standing::read(&mut transaction).await?;
        Ok(Self { transaction, standing })
    }

    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }

    /// Points that the chunks do not hold yet. `from` is the earliest requested measurement time, if that is bounded:
    /// unreadable rows that may hold points since then are counted for the answer.
    pub(super) async fn tail(&mut self, from: Option<i64>) -> Result<Tail, SeriesError> {
        let oldest = from.map_or(NaiveDate::MIN, first_day_since);
        let Standing { progress, newest, points, .. } = self.standing;
        let skipped = self.standing.skipped(oldest);
        note_skipped(skipped);
        if newest == progress.position {
            return Ok(Tail::default());
        }
        if points - progress.total > MAX_TAIL {
            return Err(SeriesError::Behind(points - progress.total));
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

    /// Ends the transaction. Nothing was written in it, so its end is not waited for.
    pub(super) fn close(self) {
        drop(self.transaction);
    }
}
