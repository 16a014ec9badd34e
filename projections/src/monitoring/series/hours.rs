//! Chunks by hour: how many points each hour has, and the points of an hour a few rows at a time. Hours do not overlap,
//! so whole ones are passed over by their counts.

use chrono::NaiveDate;
use signalbox_datapoint_log::ChunkPoint;
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, Postgres, QueryBuilder};

use super::{
    Datapoint, HOUR, SeriesError,
    chunk::{ChunkKey, Names, bytes_of},
    first_day_since, hour_of,
    snapshot::Tail,
};

/// Matches up to which they are counted exactly.
pub(super) const EXACT: i64 = 100_000;
/// Points that are decoded at once at most, but for a single row.
const AT_ONCE: i64 = 50_000;

/// Conditions on points; `None` matches any value.
#[derive(Debug, Clone, Default)]
pub(super) struct Range {
    pub(super) channels: Option<Vec<i32>>,
    /// At or after, in microseconds.
    pub(super) from: Option<i64>,
    /// Before, in microseconds.
    pub(super) to: Option<i64>,
    /// In rows of the log up to this one.
    pub(super) upto: Option<i64>,
}

/// An hour that has points.
#[derive(Debug, Clone, Copy, FromRow)]
pub(super) struct Hour {
    pub(super) hour: i32,
    pub(super) count: i64,
    min_time: i64,
    max_time: i64,
    /// Whether `count` is a guess, see [`hours`].
    #[row(default)]
    pub(super) is_estimated: bool,
}

/// A row of an hour, without its points.
#[derive(Debug, Clone, Copy, FromRow)]
pub(super) struct HourRow {
    channel: i32,
    day: NaiveDate,
    part: i32,
    count: i32,
    min_time: i64,
    max_time: i64,
}

impl Range {
    pub(super) fn contains(&self, point: &Datapoint) -> bool {
        self.contains_point(&point.point)
            && self.channels.as_ref().is_none_or(|channels| channels.contains(&point.channel))
    }

    fn contains_point(&self, point: &ChunkPoint) -> bool {
        self.contains_time(point.time) && self.upto.is_none_or(|upto| point.position <= upto)
    }

    fn contains_time(&self, time: i64) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to)
    }

    fn contains_all(&self, min_time: i64, max_time: i64) -> bool {
        self.contains_time(min_time) && self.contains_time(max_time)
    }

    fn oldest_day(&self) -> Option<NaiveDate> {
        self.from.map(first_day_since)
    }

    /// About how many points of `hour` it contains; at least one.
    fn estimate(&self, hour: &Hour) -> i64 {
        let (first, last) = (hour.min_time, hour.max_time.saturating_add(1));
        let begin = self.from.map_or(first, |from| from.clamp(first, last));
        let end = self.to.map_or(last, |to| to.clamp(begin, last));
        let part = (end - begin) as f64 / (last - first) as f64;
        ((hour.count as f64 * part) as i64).max(1)
    }

    fn push_to(&self, query: &mut QueryBuilder<'_, Postgres>) {
        query.push(" WHERE true");
        if let Some(channels) = &self.channels {
            query.push(" AND channel = ANY(").push_bind(channels.clone()).push(")");
        }
        if let Some(from) = self.from {
            query.push(" AND hour >= ").push_bind(hour_of(from));
        }
        if let Some(to) = self.to {
            query.push(" AND hour <= ").push_bind(hour_of(to.saturating_sub(1)));
        }
        if let Some(day) = self.oldest_day() {
            query.push(" AND day >= ").push_bind(day);
        }
    }
}

/// The hours that have points in `range`, newest first, with their counts; the tail apart.
///
/// Hours that the range cuts are decoded and counted as long as there are [`EXACT`] points in all; of more, their part is
/// estimated by the time that it takes of the hour.
pub(super) async fn hours(
    connection: &mut PgConnection,
    range: &Range,
    tail: &Tail,
) -> Result<Vec<Hour>, SeriesError> {
    // Of one channel there are few chunks; those of all are counted by hour.
    let table = if range.channels.is_some() { "chunks" } else { "hours" };
    let mut query = QueryBuilder::new(format!(
        "SELECT hour, sum(count)::bigint AS count, min(min_time) AS min_time, max(max_time) AS max_time FROM series.{table}",
    ));
    range.push_to(&mut query);
    query.push(" GROUP BY hour HAVING sum(count) > 0 ORDER BY hour DESC");
    let mut hours: Vec<Hour> = query.build_query_as().fetch_all(&mut *connection).await?;
    let most = hours.iter().map(|hour| hour.count).sum::<i64>();
    for hour in &mut hours {
        if range.contains_all(hour.min_time, hour.max_time) {
            // The chunks still hold points that were deleted since.
            let is_in = |(channel, deleted, _): &&(i32, i32, (i64, u32))| {
                *deleted == hour.hour
                    && range.channels.as_ref().is_none_or(|channels| channels.contains(channel))
            };
            hour.count -= tail.deleted_in.iter().filter(is_in).count() as i64;
        } else if most > EXACT {
            hour.count = range.estimate(hour);
            hour.is_estimated = true;
        } else {
            hour.count = 0;
            let mut rows = rows_of(connection, range, hour.hour).await?;
            while let Some(points) = next_points(connection, hour.hour, &mut rows, range, tail).await? {
                hour.count += points.len() as i64;
            }
        }
    }
    hours.retain(|hour| hour.count > 0);
    Ok(hours)
}

/// The hours that have points in `range`, and perhaps some at its ends that have none; the tail apart.
pub(super) async fn hour_numbers(
    connection: &mut PgConnection,
    range: &Range,
) -> Result<Vec<i32>, SeriesError> {
    let table = if range.channels.is_some() { "chunks" } else { "hours" };
    let mut query = QueryBuilder::new(format!("SELECT DISTINCT hour FROM series.{table}"));
    range.push_to(&mut query);
    Ok(query.build_query_scalar().fetch_all(connection).await?)
}

/// The rows of an hour, those with the newest points last.
pub(super) async fn rows_of(
    connection: &mut PgConnection,
    range: &Range,
    hour: i32,
) -> Result<Vec<HourRow>, SeriesError> {
    let mut query =
        QueryBuilder::new("SELECT channel, day, part, count, min_time, max_time FROM series.chunks");
    range.push_to(&mut query);
    query.push(" AND hour = ").push_bind(hour).push(" ORDER BY max_time, channel, day, part");
    let rows: Vec<HourRow> = query.build_query_as().fetch_all(connection).await?;
    let overlaps = |row: &HourRow| {
        range.from.is_none_or(|from| row.max_time >= from) && range.to.is_none_or(|to| row.min_time < to)
    };
    Ok(rows.into_iter().filter(overlaps).collect())
}

/// Takes some rows from the end of `rows` and returns their points in `range`; `None` when there are no more rows.
pub(super) async fn next_points(
    connection: &mut PgConnection,
    hour: i32,
    rows: &mut Vec<HourRow>,
    range: &Range,
    tail: &Tail,
) -> Result<Option<Vec<Datapoint>>, SeriesError> {
    let (mut names, mut count) = (Names::default(), 0);
    while let Some(row) = rows.pop_if(|row| names.is_empty() || count + i64::from(row.count) <= AT_ONCE) {
        count += i64::from(row.count);
        names.push(ChunkKey { channel: row.channel, hour, day: row.day }, row.part);
    }
    if names.is_empty() {
        return Ok(None);
    }
    let mut found = Vec::new();
    for row in bytes_of(connection, "series", "points", &names).await? {
        let is_selected = |point: &ChunkPoint| range.contains_point(point) && !tail.is_deleted(point);
        let points = row.points().unwrap_or_default().into_iter().filter(is_selected);
        found.extend(points.map(|point| Datapoint { channel: row.channel, day: row.day, point }));
    }
    Ok(Some(found))
}

/// The newest `count` points of an hour, in no order: rows are read only as long as they can hold newer points than
/// those found.
pub(super) async fn newest_of_hour(
    connection: &mut PgConnection,
    hour: i32,
    range: &Range,
    tail: &Tail,
    count: usize,
) -> Result<Vec<Datapoint>, SeriesError> {
    let mut rows = rows_of(connection, range, hour).await?;
    let mut found = Vec::new();
    loop {
        let oldest = keep_newest(&mut found, count);
        let rest_is_older = rows.last().is_none_or(|row| oldest.is_some_and(|oldest| row.max_time < oldest));
        if rest_is_older {
            return Ok(found);
        }
        // A few rows first: mostly they are enough.
        let few = rows.split_off(rows.len().saturating_sub(32));
        let mut few = few;
        while let Some(points) = next_points(connection, hour, &mut few, range, tail).await? {
            found.extend(points);
            keep_newest(&mut found, count);
        }
    }
}

/// The oldest points of an hour, about `count`, in no order, and the time at which the remaining ones start, if there
/// are any. Rows are read only as long as they can hold older points than those found. Points of one instant stay
/// together.
pub(super) async fn oldest_of_hour(
    connection: &mut PgConnection,
    hour: i32,
    range: &Range,
    tail: &Tail,
    count: usize,
) -> Result<(Vec<Datapoint>, Option<i64>), SeriesError> {
    let begin = i64::from(hour) * HOUR;
    let mut range = range.clone();
    range.from = Some(range.from.map_or(begin, |from| from.max(begin)));
    range.to = Some(range.to.map_or(begin + HOUR, |to| to.min(begin + HOUR)));
    let mut found: Vec<_> = tail.points.iter().filter(|point| range.contains(point)).copied().collect();
    let mut rows = rows_of(connection, &range, hour).await?;
    rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.min_time));
    let mut next = None;
    loop {
        if let Some(time) = keep_oldest(&mut found, count) {
            (range.to, next) = (Some(time), Some(time));
            rows.retain(|row| row.min_time < time);
        }
        match next_points(connection, hour, &mut rows, &range, tail).await? {
            Some(points) => found.extend(points),
            None => return Ok((found, next)),
        }
    }
}

/// Keeps the oldest `count` of `points`, and those of the same instant as the last of them; returns the time of the
/// earliest point removed.
fn keep_oldest(points: &mut Vec<Datapoint>, count: usize) -> Option<i64> {
    if points.len() <= count {
        return None;
    }
    let (_, last, later) = points.select_nth_unstable_by_key(count - 1, |point| point.point.time);
    let last = last.point.time;
    let next = later.iter().map(|point| point.point.time).filter(|time| *time > last).min()?;
    points.retain(|point| point.point.time < next);
    Some(next)
}

/// Keeps the newest `count` of `points`; returns the time of the oldest one if there are that many.
pub(super) fn keep_newest(points: &mut Vec<Datapoint>, count: usize) -> Option<i64> {
    if count == 0 {
        points.clear();
        return Some(i64::MAX);
    }
    if points.len() < count {
        return None;
    }
    let newest_first = |point: &Datapoint| std::cmp::Reverse(point.point.order());
    let (_, last, _) = points.select_nth_unstable_by_key(count - 1, newest_first);
    let time = last.point.time;
    points.truncate(count);
    Some(time)
}
