//! Chunks by hour: how many points each hour has, and the points of an hour a few rows at a time. Hours do not overlap,
//! so whole ones are passed over by their counts.

use chrono::NaiveDate;
use signalbox_datapoint_log::{ChunkPoint, codec::decode_chunk, moment};
use sqlx::{FromRow, PgConnection, Postgres, QueryBuilder};

use super::{
    Datapoint, HOUR, SeriesError,
    chunk::{ChunkKey, Names, bytes_of},
    hour_of,
    snapshot::Tail,
};

/// Points that are decoded at once at most, but for a single row.
const AT_ONCE: i64 = 50_000;

/// Which points are wanted; `None` means any.
#[derive(Debug, Clone, Default)]
pub(super) struct Range {
    pub(super) channels: Option<Vec<i32>>,
    /// At or after, in microseconds.
    pub(super) from: Option<i64>,
    /// Before, in microseconds.
    pub(super) to: Option<i64>,
}

/// An hour that has points.
#[derive(Debug, Clone, Copy, FromRow)]
pub(super) struct Hour {
    pub(super) hour: i32,
    pub(super) count: i64,
    min_time: i64,
    max_time: i64,
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
        self.contains_time(point.point.time)
            && self.channels.as_ref().is_none_or(|channels| channels.contains(&point.channel))
    }

    fn contains_time(&self, time: i64) -> bool {
        self.from.is_none_or(|from| time >= from) && self.to.is_none_or(|to| time < to)
    }

    fn contains_all(&self, min_time: i64, max_time: i64) -> bool {
        self.contains_time(min_time) && self.contains_time(max_time)
    }

    /// Points are measured no later than ten minutes after they came in, so older days of the log hold none.
    fn oldest_day(&self) -> Option<NaiveDate> {
        self.from.map(|from| moment(from.saturating_sub(HOUR)).date_naive())
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

/// The hours that have points in `range`, newest first, with exact counts; the tail apart.
pub(super) async fn hours(
    connection: &mut PgConnection,
    range: &Range,
    tail: &Tail,
) -> Result<Vec<Hour>, SeriesError> {
    let mut query = QueryBuilder::new(
        "SELECT hour, sum(count)::bigint AS count, min(min_time) AS min_time, max(max_time) AS max_time FROM series.chunks",
    );
    range.push_to(&mut query);
    query.push(" GROUP BY hour ORDER BY hour DESC");
    let mut hours: Vec<Hour> = query.build_query_as().fetch_all(&mut *connection).await?;
    for hour in &mut hours {
        let has_deleted = tail.deleted_in.iter().any(|(_, deleted, _)| *deleted == hour.hour);
        // The first and the last hour may be cut, and points may have been deleted since.
        if has_deleted || !range.contains_all(hour.min_time, hour.max_time) {
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
    let mut query = QueryBuilder::new("SELECT DISTINCT hour FROM series.chunks");
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

/// Takes some rows from the end of `rows` and gives back their points in `range`; `None` when there are no more rows.
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
        let wanted = |point: &ChunkPoint| range.contains_time(point.time) && !tail.is_deleted(point);
        let points = decode_chunk(&row.bytes)?.into_iter().filter(wanted);
        found.extend(points.map(|point| Datapoint { channel: row.channel, day: row.day, point }));
    }
    Ok(Some(found))
}

/// The newest `wanted` points of an hour, in no order: rows are read only as long as they can hold newer points than those
/// found.
pub(super) async fn newest_of_hour(
    connection: &mut PgConnection,
    hour: i32,
    range: &Range,
    tail: &Tail,
    wanted: usize,
) -> Result<Vec<Datapoint>, SeriesError> {
    let mut rows = rows_of(connection, range, hour).await?;
    let mut found = Vec::new();
    loop {
        let oldest = keep_newest(&mut found, wanted);
        let rest_is_older = rows.last().is_none_or(|row| oldest.is_some_and(|oldest| row.max_time < oldest));
        if rest_is_older {
            return Ok(found);
        }
        // A few rows first: mostly they are enough.
        let few = rows.split_off(rows.len().saturating_sub(32));
        let mut few = few;
        while let Some(points) = next_points(connection, hour, &mut few, range, tail).await? {
            found.extend(points);
            keep_newest(&mut found, wanted);
        }
    }
}

/// The oldest points of an hour, about `wanted`, in no order, and the time at which the others begin, if there are any.
/// Rows are read only as long as they can hold older points than those found. Points of one instant are not parted.
pub(super) async fn oldest_of_hour(
    connection: &mut PgConnection,
    hour: i32,
    range: &Range,
    tail: &Tail,
    wanted: usize,
) -> Result<(Vec<Datapoint>, Option<i64>), SeriesError> {
    let begin = i64::from(hour) * HOUR;
    let mut range = range.clone();
    range.to = Some(range.to.map_or(begin + HOUR, |to| to.min(begin + HOUR)));
    let mut found: Vec<_> = tail.points.iter().filter(|point| range.contains(point)).copied().collect();
    let mut rows = rows_of(connection, &range, hour).await?;
    rows.sort_unstable_by_key(|row| std::cmp::Reverse(row.min_time));
    let mut next = None;
    loop {
        if let Some(time) = keep_oldest(&mut found, wanted) {
            (range.to, next) = (Some(time), Some(time));
            rows.retain(|row| row.min_time < time);
        }
        match next_points(connection, hour, &mut rows, &range, tail).await? {
            Some(points) => found.extend(points),
            None => return Ok((found, next)),
        }
    }
}

/// Leaves the oldest `wanted` of `points`, if there are more, and those of the same instant as the last of them; gives back
/// the time at which those begin that were removed.
fn keep_oldest(points: &mut Vec<Datapoint>, wanted: usize) -> Option<i64> {
    if points.len() <= wanted {
        return None;
    }
    let (_, last, later) = points.select_nth_unstable_by_key(wanted - 1, |point| point.point.time);
    let last = last.point.time;
    let next = later.iter().map(|point| point.point.time).filter(|time| *time > last).min()?;
    points.retain(|point| point.point.time < next);
    Some(next)
}

/// Leaves only the newest `wanted` of `points`; gives back the time of the oldest one if there are so many.
pub(super) fn keep_newest(points: &mut Vec<Datapoint>, wanted: usize) -> Option<i64> {
    if wanted == 0 {
        points.clear();
        return Some(i64::MAX);
    }
    if points.len() < wanted {
        return None;
    }
    let newest_first = |point: &Datapoint| std::cmp::Reverse(point.point.order());
    let (_, last, _) = points.select_nth_unstable_by_key(wanted - 1, newest_first);
    let time = last.point.time;
    points.truncate(wanted);
    Some(time)
}
