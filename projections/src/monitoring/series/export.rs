//! All points of a span of time, oldest first, a slice at a time: memory is bounded by the slice, however many points an
//! hour or a second holds.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use signalbox_datapoint_log::micros;
use sqlx::PgPool;

use super::{
    Datapoint, HOUR, SeriesError, hour_of,
    hours::{Range, hour_numbers, oldest_of_hour},
    snapshot::{Snapshot, Tail},
};

/// Points of a slice at most, but for those of one instant. An hour is read once for each of its slices.
const SLICE: usize = 150_000;

/// From when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportSpan {
    /// Measured at or after.
    pub from: DateTime<Utc>,
    /// Measured before; `None` for all since.
    pub to: Option<DateTime<Utc>>,
}

/// The points of a span as they were when the export began.
pub struct Export {
    snapshot: Snapshot,
    tail: Tail,
    /// What is left of the span.
    range: Range,
    /// Hours that are left.
    hours: BTreeSet<i32>,
    slice: usize,
}

impl Export {
    /// Begins an export.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub async fn begin(pool: &PgPool, span: ExportSpan) -> Result<Self, SeriesError> {
        let range = Range { channels: None, from: Some(micros(span.from)), to: span.to.map(micros) };
        let mut snapshot = Snapshot::open(pool).await?;
        let mut tail = snapshot.tail().await?;
        tail.points.retain(|point| range.contains(point));
        let folded = hour_numbers(snapshot.connection(), &range).await?;
        let hours = folded.into_iter().chain(tail.points.iter().map(|point| hour_of(point.point.time)));
        Ok(Self { hours: hours.collect(), snapshot, tail, range, slice: SLICE })
    }

    /// Gives back `points` at a time.
    #[must_use]
    pub fn in_slices_of(mut self, points: usize) -> Self {
        self.slice = points;
        self
    }

    /// The next points, oldest first; `None` at the end.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub async fn next(&mut self) -> Result<Option<Vec<Datapoint>>, SeriesError> {
        let Some(hour) = self.hours.first().copied() else { return Ok(None) };
        let connection = self.snapshot.connection();
        let (mut points, next) =
            oldest_of_hour(connection, hour, &self.range, &self.tail, self.slice).await?;
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
}
