//! All points of a span of time, oldest first, a slice at a time: memory is bounded by the slice, however many points an
//! hour or a second holds.
//!
//! Every slice is read in a snapshot of its own, so that a client that reads slowly holds no connection, and no
//! snapshot that keeps PostgreSQL from pruning. The end of the log and of the time range are fixed when the export
//! starts: later values are in no slice. Points that are deleted while the export runs are left out of the remaining
//! slices.

use signalbox_boxed::boxed;
use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, Utc};
use signalbox_datapoint_log::{ChunkPoint, head, micros};
use sqlx::PgPool;
use tokio::time::sleep;

use super::{
    Datapoint, HOUR, SeriesError, hour_of,
    hours::{Range, hour_numbers, oldest_of_hour},
    snapshot::{Snapshot, Tail},
};

/// Points of a slice at most, but for those of one instant. An hour is read once for each of its slices.
const SLICE: usize = 150_000;
/// How often a slice waits for a lagging fold, and for how long.
const RETRIES: usize = 30;
const RETRY: Duration = Duration::from_secs(1);

/// Which points are exported.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExportSpan {
    /// Measured at or after.
    pub from: DateTime<Utc>,
    /// Measured before; `None` for all since.
    pub to: Option<DateTime<Utc>>,
    /// Integers of the channels; `None` for all.
    pub channels: Option<Vec<i32>>,
    /// Only those behind this one, in the order of an export.
    pub after: Option<ChunkPoint>,
}

/// The points of a span that were in the log when the export began.
pub struct Export {
    pool: PgPool,
    /// The time range still to be exported.
    range: Range,
    after: Option<ChunkPoint>,
    /// Hours that are left.
    hours: BTreeSet<i32>,
    slice: usize,
}

impl Export {
    /// Starts an export.
    ///
    /// # Errors
    /// [`SeriesError`].
    #[boxed]
    pub async fn begin(pool: &PgPool, span: ExportSpan) -> Result<Self, SeriesError> {
        let ExportSpan { from, to, channels, after } = span;
        let from = after.map_or(micros(from), |after| after.time.max(micros(from)));
        let mut range = Range { channels, from: Some(from), to: to.map(micros), upto: None };
        let mut snapshot = Snapshot::open_for_export(pool).await?;
        let tail = snapshot.tail(range.from).await?;
        range.upto = Some(head(snapshot.connection()).await?.position);
        let folded = hour_numbers(snapshot.connection(), &range).await?;
        snapshot.close();
        let new = tail.points.iter().filter(|point| range.contains(point));
        let hours = folded.into_iter().chain(new.map(|point| hour_of(point.point.time))).collect();
        Ok(Self { hours, pool: pool.clone(), range, after, slice: SLICE })
    }

    /// returns `points` at a time.
    #[must_use]
    pub fn in_slices_of(mut self, points: usize) -> Self {
        self.slice = points;
        self
    }

    /// The next points, oldest first; `None` at the end.
    ///
    /// # Errors
    /// [`SeriesError`].
    #[boxed]
    pub async fn next(&mut self) -> Result<Option<Vec<Datapoint>>, SeriesError> {
        let Some(hour) = self.hours.first().copied() else { return Ok(None) };
        let (mut snapshot, mut tail) = self.look().await?;
        tail.points.retain(|point| self.range.contains(point));
        let (mut points, next) =
            oldest_of_hour(snapshot.connection(), hour, &self.range, &tail, self.slice).await?;
        snapshot.close();
        if let Some(after) = self.after {
            points.retain(|point| point.point.order() > after.order());
        }
        points.sort_unstable_by_key(|point| point.point.order());
        match next {
            Some(time) => self.range.from = Some(time),
            None => {
                self.hours.pop_first();
                self.range.from = self.range.from.max(Some((i64::from(hour) + 1) * HOUR));
            }
        }
        Ok(Some(points))
    }

    async fn look(&self) -> Result<(Snapshot, Tail), SeriesError> {
        for _ in 0..RETRIES {
            let mut snapshot = Snapshot::open_for_export(&self.pool).await?;
            match snapshot.tail(self.range.from).await {
                Err(SeriesError::Behind(_)) => snapshot.close(),
                tail => return Ok((snapshot, tail?)),
            }
            sleep(RETRY).await;
        }
        let mut snapshot = Snapshot::open_for_export(&self.pool).await?;
        let tail = snapshot.tail(self.range.from).await?;
        Ok((snapshot, tail))
    }
}
