//! Aggregates of a few channels over equal steps of time.

use signalbox_boxed::boxed;
use std::collections::BTreeMap;

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use signalbox_datapoint_log::{ChunkPoint, micros, moment};
use sqlx::{FromRow, PgConnection, PgPool};

use super::{
    SeriesError,
    chunk::{ChunkKey, Names, bytes_of},
    first_day_since, hour_of,
    snapshot::{Snapshot, Tail},
    summary::Summary,
};

/// Points that are decoded at once at most, but for a single row.
const AT_ONCE: i64 = 50_000;

/// The request: buckets `[from + i·step, from + (i+1)·step)`, the last one ending at `to`.
#[derive(Debug, Clone)]
pub struct BucketWindow {
    /// Integers of the channels.
    pub channels: Vec<i32>,
    /// Measured at or after.
    pub from: DateTime<Utc>,
    /// Measured before.
    pub to: DateTime<Utc>,
    /// Width of a bucket; at least a microsecond.
    pub step: TimeDelta,
}

/// The points of a channel in one step of time; at least one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// When it begins.
    pub start: DateTime<Utc>,
    /// Its aggregates.
    pub summary: Summary,
}

/// The window in microseconds, and what has been found in it.
struct Collected {
    from: i64,
    to: i64,
    step: i64,
    /// By channel and number.
    found: BTreeMap<i32, BTreeMap<i64, Summary>>,
}

#[derive(Debug, Clone, Copy, FromRow)]
struct RowHead {
    channel: i32,
    hour: i32,
    day: NaiveDate,
    part: i32,
    count: i32,
}

impl Collected {
    fn new(window: &BucketWindow) -> Self {
        let step = window.step.num_microseconds().unwrap_or(i64::MAX).max(1);
        let found = window.channels.iter().map(|channel| (*channel, BTreeMap::new())).collect();
        Self { from: micros(window.from), to: micros(window.to), step, found }
    }

    /// Adds `point` if the window contains it.
    fn add_point(&mut self, channel: i32, point: &ChunkPoint) {
        if point.time >= self.from && point.time < self.to {
            self.add(channel, point.time, &Summary::of(*point));
        }
    }

    /// Adds `summary` to the bucket that contains `time`.
    fn add(&mut self, channel: i32, time: i64, summary: &Summary) {
        let number = (time - self.from).div_euclid(self.step);
        if let Some(buckets) = self.found.get_mut(&channel) {
            buckets.entry(number).and_modify(|sum| *sum = sum.plus(summary)).or_insert(*summary);
        }
    }

    fn channels(&self) -> Vec<i32> {
        self.found.keys().copied().collect()
    }

    fn buckets(self) -> BTreeMap<i32, Vec<Bucket>> {
        let Self { from, step, found, .. } = self;
        let bucket = |(number, summary)| Bucket { start: moment(from + number * step), summary };
        found.into_iter().map(|(channel, sums)| (channel, sums.into_iter().map(bucket).collect())).collect()
    }
}

/// The buckets of each channel in `window` that have points, oldest first.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn buckets(
    pool: &PgPool,
    window: &BucketWindow,
) -> Result<BTreeMap<i32, Vec<Bucket>>, SeriesError> {
    let mut collected = Collected::new(window);
    let mut snapshot = Snapshot::open(pool).await?;
    let tail = snapshot.tail(Some(collected.from)).await?;
    add_folded(snapshot.connection(), &tail, &mut collected).await?;
    snapshot.close().await?;
    for point in &tail.points {
        collected.add_point(point.channel, &point.point);
    }
    Ok(collected.buckets())
}

async fn add_folded(
    connection: &mut PgConnection,
    tail: &Tail,
    collected: &mut Collected,
) -> Result<(), SeriesError> {
    let rows: Vec<RowHead> = sqlx::query_as(
        "SELECT channel, hour, day, part, count FROM series.chunks
          WHERE channel = ANY($1) AND hour BETWEEN $2 AND $3 AND day >= $4 AND max_time >= $5 AND min_time < $6",
    )
    .bind(collected.channels())
    .bind(hour_of(collected.from))
    .bind(hour_of(collected.to - 1))
    .bind(first_day_since(collected.from))
    .bind(collected.from)
    .bind(collected.to)
    .fetch_all(&mut *connection)
    .await?;
    add_rows(connection, rows, tail, collected).await
}

/// Adds the points of `rows`, a few rows at a time.
async fn add_rows(
    connection: &mut PgConnection,
    rows: Vec<RowHead>,
    tail: &Tail,
    collected: &mut Collected,
) -> Result<(), SeriesError> {
    let mut rows = rows.into_iter().peekable();
    while rows.peek().is_some() {
        let (mut names, mut count) = (Names::default(), 0);
        while let Some(row) = rows.next_if(|row| names.is_empty() || count + i64::from(row.count) <= AT_ONCE)
        {
            count += i64::from(row.count);
            let RowHead { channel, hour, day, part, .. } = row;
            names.push(ChunkKey { channel, hour, day }, part);
        }
        for row in bytes_of(connection, "series", "points", &names).await? {
            for point in row.points().unwrap_or_default().iter().filter(|point| !tail.is_deleted(point)) {
                collected.add_point(row.channel, point);
            }
        }
    }
    Ok(())
}
