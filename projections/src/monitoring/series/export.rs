//! All points of a span of time, oldest first, a slice at a time: memory is bounded by the slice, not by the span.

use chrono::{DateTime, Utc};
use signalbox_datapoint_log::micros;
use sqlx::PgPool;

use super::{
    Datapoint, HOUR, SeriesError, hour_of,
    hours::{Range, hours, next_points, rows_of},
    snapshot::{Snapshot, Tail},
};

/// Points of a slice, about.
const SLICE: i64 = 50_000;

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
    range: Range,
    /// What is left, the next slice last.
    slices: Vec<Range>,
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
        let mut counts: std::collections::BTreeMap<i32, i64> = std::collections::BTreeMap::new();
        for hour in hours(snapshot.connection(), &range, &tail).await? {
            *counts.entry(hour.hour).or_default() += hour.count;
        }
        for point in &tail.points {
            *counts.entry(hour_of(point.point.time)).or_default() += 1;
        }
        let slices = counts.into_iter().rev().flat_map(|(hour, count)| slices_of(&range, hour, count));
        Ok(Self { slices: slices.collect(), snapshot, tail, range })
    }

    /// The next points, oldest first; `None` at the end.
    ///
    /// # Errors
    /// [`SeriesError`].
    pub async fn next(&mut self) -> Result<Option<Vec<Datapoint>>, SeriesError> {
        let Some(slice) = self.slices.pop() else { return Ok(None) };
        let hour = hour_of(slice.from.or(self.range.from).unwrap_or_default());
        let connection = self.snapshot.connection();
        let mut rows = rows_of(connection, &slice, hour).await?;
        let mut found: Vec<_> =
            self.tail.points.iter().filter(|point| slice.contains(point)).copied().collect();
        while let Some(points) = next_points(connection, hour, &mut rows, &slice, &self.tail).await? {
            found.extend(points);
        }
        found.sort_unstable_by_key(|point| point.point.order());
        Ok(Some(found))
    }
}

/// `hour` cut into slices of about the same number of points, the last one first.
fn slices_of(range: &Range, hour: i32, count: i64) -> Vec<Range> {
    let begin = i64::from(hour) * HOUR;
    let (from, to) = (range.from.unwrap_or(begin).max(begin), begin + HOUR);
    let to = range.to.unwrap_or(to).min(to);
    let parts = (count + SLICE - 1) / SLICE;
    let bound = |part: i64| from + (to - from) / parts * part;
    let slice = |part: i64| Range {
        channels: None,
        from: Some(bound(part)),
        to: Some(if part + 1 == parts { to } else { bound(part + 1) }),
    };
    (0..parts).rev().map(slice).collect()
}
