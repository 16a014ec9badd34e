//! Aggregates of a few channels over equal steps of time: of roll-ups per day and hour as far as these are in one bucket, of points
//! at the ends of buckets, and of the tail of the log that is not folded yet, all in one snapshot.

use signalbox_boxed::boxed;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
};

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use futures::TryStreamExt;
use signalbox_datapoint_log::{ChunkPoint, codec::decode_chunk, micros, moment};
use sqlx::{PgConnection, PgPool};

use super::{
    DAY, HOUR, SeriesError,
    chunk::{self, ChunkKey, Names, RowHead, bytes_of, readable},
    columns, cut_hours, first_day_since, hour_of,
    incomplete::note_cut_hour,
    packing,
    rollups::{self, RollupRow, Source},
    snapshot::{Snapshot, Tail},
    summary::{Figures, Summary},
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
    /// Which figures of each bucket are asked for.
    pub figures: Figures,
}

/// The points of a channel in one step of time; at least one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// When it starts.
    pub start: DateTime<Utc>,
    /// Its aggregates.
    pub summary: Summary,
}

/// The window in microseconds, and what has been found in it.
struct Collected {
    from: i64,
    to: i64,
    step: i64,
    figures: Figures,
    /// By channel and number.
    found: BTreeMap<i32, BTreeMap<i64, Summary>>,
    /// Belongs to `found`, too.
    run: Option<Run>,
}

/// Points of one bucket that were added one after the other.
struct Run {
    channel: i32,
    times: Range<i64>,
    summary: Summary,
}

impl Collected {
    fn new(window: &BucketWindow) -> Self {
        let step = window.step.num_microseconds().unwrap_or(i64::MAX).max(1);
        let found = window.channels.iter().map(|channel| (*channel, BTreeMap::new())).collect();
        Self {
            from: micros(window.from),
            to: micros(window.to),
            step,
            figures: window.figures,
            found,
            run: None,
        }
    }

    /// Adds `point` if the window contains it.
    fn add_point(&mut self, channel: i32, point: &ChunkPoint) {
        if point.time >= self.from && point.time < self.to {
            self.add(channel, point.time, &Summary::of(*point));
        }
    }

    /// Adds `points` without those that were deleted since.
    fn add_points(&mut self, channel: i32, points: &[ChunkPoint], tail: &Tail) {
        for point in points.iter().filter(|point| !tail.is_deleted(point)) {
            self.add_point(channel, point);
        }
    }

    /// Adds `summary` to the bucket that contains `time`, which stays open, because the next summary is mostly of the same one.
    fn add(&mut self, channel: i32, time: i64, summary: &Summary) {
        if let Some(run) = &mut self.run
            && run.channel == channel
            && run.times.contains(&time)
        {
            run.summary = run.summary.plus(summary);
            return;
        }
        self.end_run();
        let start = time - (time - self.from).rem_euclid(self.step);
        let times = start..start.saturating_add(self.step);
        self.run = Some(Run { channel, times, summary: *summary });
    }

    fn end_run(&mut self) {
        let Some(Run { channel, times, summary }) = self.run.take() else { return };
        if let Some(buckets) = self.found.get_mut(&channel) {
            let number = (times.start - self.from).div_euclid(self.step);
            buckets.entry(number).and_modify(|sum| *sum = sum.plus(&summary)).or_insert(summary);
        }
    }

    /// Adds `row` if one bucket, or none, has all of its points; false if an end cuts them.
    fn add_within(&mut self, row: &RollupRow) -> bool {
        let summary = row.summary();
        let (first, last) = (summary.first().time, summary.last().time);
        if last < self.from || first >= self.to {
            return true;
        }
        let number = |time: i64| (time - self.from).div_euclid(self.step);
        let is_within = first >= self.from && last < self.to && number(first) == number(last);
        if is_within {
            self.add(row.channel, first, &summary);
        }
        is_within
    }

    fn channels(&self) -> Vec<i32> {
        self.found.keys().copied().collect()
    }

    fn buckets(mut self) -> BTreeMap<i32, Vec<Bucket>> {
        self.end_run();
        let Self { from, step, found, .. } = self;
        let bucket =
            |(number, summary): (i64, Summary)| Bucket { start: moment(from + number * step), summary };
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
    // Buckets of less than an hour are made of the points of hours that are found by their keys.
    let mut snapshot = match collected.step < HOUR {
        true => Snapshot::open_by_key(pool).await?,
        false => Snapshot::open(pool).await?,
    };
    let tail = snapshot.tail(Some(collected.from)).await?;
    add_folded(&mut snapshot, &tail, &mut collected).await?;
    snapshot.close();
    for point in &tail.points {
        collected.add_point(point.channel, &point.point);
    }
    Ok(collected.buckets())
}

async fn add_folded(
    snapshot: &mut Snapshot,
    tail: &Tail,
    collected: &mut Collected,
) -> Result<(), SeriesError> {
    let standing = snapshot.standing();
    let (is_current, has_packs) = (standing.has_current_rollups(), standing.has_current_packs());
    let has_kept = standing.has_kept;
    let unrolled = standing.unrolled.clone();
    let connection = snapshot.connection();
    if !is_current {
        add_chunks(&mut *connection, None, tail, collected).await?;
        return add_rollups(connection, Source::Kept, tail, collected).await;
    }
    if !unrolled.is_empty() {
        add_chunks(&mut *connection, Some(unrolled), tail, collected).await?;
    }
    let source = if has_packs { Source::Packed { has_kept } } else { Source::All };
    add_rollups(connection, source, tail, collected).await
}

/// Adds the points of chunks, of some days of the log or of all.
async fn add_chunks(
    connection: &mut PgConnection,
    days: Option<Vec<NaiveDate>>,
    tail: &Tail,
    collected: &mut Collected,
) -> Result<(), SeriesError> {
    let rows: Vec<RowHead> = sqlx::query_as(
        "SELECT channel, hour, day, part, count FROM series.chunks
          WHERE channel = ANY($1) AND hour BETWEEN $2 AND $3 AND day >= $4 AND max_time >= $5 AND min_time < $6
            AND ($7::date[] IS NULL OR day = ANY($7))",
    )
    .bind(collected.channels())
    .bind(hour_of(collected.from))
    .bind(hour_of(collected.to - 1))
    .bind(first_day_since(collected.from))
    .bind(collected.from)
    .bind(collected.to)
    .bind(days)
    .fetch_all(&mut *connection)
    .await?;
    add_rows(connection, rows, tail, collected).await
}

/// Adds days and hours that are in one bucket by their roll-ups, and the points of the other hours. Hours with points that were
/// deleted since are among the other ones. Where the points of an hour are gone, it is added only as a whole; one that an end of a bucket
/// cuts is left out and counted.
async fn add_rollups(
    connection: &mut PgConnection,
    source: Source,
    tail: &Tail,
    collected: &mut Collected,
) -> Result<(), SeriesError> {
    let plan = Plan::new(collected.from, collected.to, collected.step);
    let mut raw = Names::default();
    if tail.deleted_in.is_empty() {
        add_whole(&mut *connection, source, &plan, collected).await?;
    } else {
        add_without_deleted(&mut *connection, source, &plan, tail, (collected, &mut raw)).await?;
    }
    let heads =
        if raw.is_empty() { Vec::new() } else { chunk::heads(&mut *connection, "series", &raw).await? };
    add_rows(&mut *connection, heads, tail, collected).await?;
    add_cut_hours(connection, source, &plan, tail, collected).await
}

/// Adds the hours that the ends of buckets cut.
async fn add_cut_hours(
    connection: &mut PgConnection,
    source: Source,
    plan: &Plan,
    tail: &Tail,
    collected: &mut Collected,
) -> Result<(), SeriesError> {
    if plan.raw.is_empty() {
        return Ok(());
    }
    let (channels, mut later) = (collected.channels(), Vec::new());
    let rows = cut_hours::of_ranges(&mut *connection, source, &channels, &plan.raw, AT_ONCE).await?;
    for row in rows {
        match (&row.bytes, row.head()) {
            (Some(bytes), Some(head)) => {
                let points = readable(decode_chunk(bytes), head.channel, head.hour).unwrap_or_default();
                collected.add_points(head.channel, &points, tail);
            }
            (None, Some(head)) => later.push(head),
            (_, None) => {
                if row.rollup.is_kept && !collected.add_within(&row.rollup) {
                    note_cut_hour();
                }
            }
        }
    }
    add_rows(connection, later, tail, collected).await
}

/// Adds the days and hours of a plan.
async fn add_whole(
    connection: &mut PgConnection,
    source: Source,
    plan: &Plan,
    collected: &mut Collected,
) -> Result<(), SeriesError> {
    let (channels, figures) = (collected.channels(), collected.figures);
    let mut rest = Some(source);
    if let Source::Packed { has_kept } = source
        && !plan.hours.is_empty()
    {
        rest = has_kept.then_some(Source::Kept);
        packing::each_hour(&mut *connection, &channels, &plan.hours, figures, |channel, hour, summary| {
            collected.add(channel, i64::from(hour) * HOUR, summary);
        })
        .await?;
    }
    for channel in channels {
        for (source, span, ranges) in [(Some(source), DAY, &plan.days), (rest, 1, &plan.hours)] {
            let Some(source) = source.filter(|_| !ranges.is_empty()) else { continue };
            let numbers = (span, ranges.as_slice());
            for (number, summary) in
                columns::of_ranges(&mut *connection, source, channel, numbers, figures).await?
            {
                collected.add(channel, i64::from(number) * i64::from(span) * HOUR, &summary);
            }
        }
    }
    Ok(())
}

/// Adds the days and hours of a plan; hours of which points were deleted since are named in `raw` instead.
async fn add_without_deleted(
    connection: &mut PgConnection,
    source: Source,
    plan: &Plan,
    tail: &Tail,
    (collected, raw): (&mut Collected, &mut Names),
) -> Result<(), SeriesError> {
    let hours: HashSet<(i32, i32)> =
        tail.deleted_in.iter().map(|(channel, hour, _)| (*channel, *hour)).collect();
    let days: HashSet<(i32, i32)> =
        hours.iter().map(|(channel, hour)| (*channel, hour.div_euclid(DAY))).collect();
    let channels = collected.channels();
    // Days that are taken apart, and hours.
    let mut parted: BTreeSet<(i32, i32)> = BTreeSet::new();
    let mut rows = rollups::of_ranges(&mut *connection, source, &channels, DAY, &plan.days);
    while let Some(row) = rows.try_next().await? {
        if !row.is_kept && days.contains(&(row.channel, row.number)) {
            parted.insert((row.channel, row.number));
        } else {
            collected.add(row.channel, i64::from(row.number) * i64::from(DAY) * HOUR, &row.summary());
        }
    }
    drop(rows);
    let mut add_hour = |row: &RollupRow, raw: &mut Names| {
        if !row.is_kept && hours.contains(&(row.channel, row.number)) {
            raw.push(ChunkKey { channel: row.channel, hour: row.number, day: row.day }, 0);
        } else {
            collected.add(row.channel, i64::from(row.number) * HOUR, &row.summary());
        }
    };
    let mut rows = rollups::of_ranges(&mut *connection, source, &channels, 1, &plan.hours);
    while let Some(row) = rows.try_next().await? {
        add_hour(&row, raw);
    }
    drop(rows);
    for (channel, day) in parted {
        let (channel, hours) = ([channel], [(day * DAY, (day + 1) * DAY)]);
        let mut rows = rollups::of_ranges(&mut *connection, source, &channel, 1, &hours);
        while let Some(row) = rows.try_next().await? {
            // Kept days have been added as a whole.
            if !row.is_kept {
                add_hour(&row, raw);
            }
        }
    }
    Ok(())
}

/// Ranges of numbers, each without its end, in order.
type Ranges = Vec<(i32, i32)>;

/// How a window is composed: of whole days and hours, each in one bucket, and of hours that an end of a bucket cuts.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    days: Ranges,
    hours: Ranges,
    raw: Ranges,
}

impl Plan {
    fn new(from: i64, to: i64, step: i64) -> Self {
        let mut plan = Self::default();
        if step < HOUR {
            extend(&mut plan.raw, from.div_euclid(HOUR), (to - 1).div_euclid(HOUR) + 1);
            return plan;
        }
        let (day, mut begin) = (i64::from(DAY), from);
        while begin < to {
            let end = begin.saturating_add(step).min(to);
            let (first, last) = (up(begin, HOUR), end.div_euclid(HOUR));
            // The hours that the ends cut; one of them may be the whole bucket.
            extend(&mut plan.raw, begin.div_euclid(HOUR), first);
            if first <= last {
                let (first_day, last_day) = (up(first, day), last.div_euclid(day));
                if first_day < last_day {
                    extend(&mut plan.hours, first, first_day * day);
                    extend(&mut plan.days, first_day, last_day);
                    extend(&mut plan.hours, last_day * day, last);
                } else {
                    extend(&mut plan.hours, first, last);
                }
                extend(&mut plan.raw, last, up(end, HOUR));
            }
            begin = end;
        }
        plan
    }
}

/// `number` divided by `size`, rounded up.
fn up(number: i64, size: i64) -> i64 {
    number.div_euclid(size) + i64::from(number.rem_euclid(size) != 0)
}

/// Adds `first` to `end` to ranges that begin before it, joined with the last one where they overlap or meet.
fn extend(ranges: &mut Ranges, first: i64, end: i64) {
    let number = |number: i64| number.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    let (first, end) = (number(first), number(end));
    match ranges.last_mut() {
        _ if first >= end => {}
        Some(last) if last.1 >= first => last.1 = last.1.max(end),
        _ => ranges.push((first, end)),
    }
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
            names.push(row.key(), row.part);
        }
        for row in bytes_of(connection, "series", "points", &names).await? {
            collected.add_points(row.channel, &row.points().unwrap_or_default(), tail);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAYS: i64 = 24 * HOUR;

    #[test]
    fn years_in_whole_days_are_days_and_their_ends() {
        let plan = Plan::new(5 * HOUR, 4000 * DAYS + 7 * HOUR, 4001 * DAYS);
        assert_eq!(plan, Plan { days: vec![(1, 4000)], hours: vec![(5, 24), (96_000, 96_007)], raw: vec![] });
        let plan = Plan::new(0, 4000 * DAYS, 7 * DAYS);
        assert_eq!(plan, Plan { days: vec![(0, 4000)], ..Plan::default() });
    }

    #[test]
    fn steps_of_whole_hours_need_no_points() {
        let plan = Plan::new(-3 * HOUR, 100 * HOUR, HOUR);
        assert_eq!(plan, Plan { hours: vec![(-3, 100)], ..Plan::default() });
        let plan = Plan::new(0, 60 * HOUR, 30 * HOUR);
        assert_eq!(
            plan,
            Plan { days: vec![(0, 1)], hours: vec![(24, 60)], raw: vec![] },
            "and the second day is cut"
        );
    }

    #[test]
    fn hours_that_are_cut_are_read_once() {
        let half = HOUR / 2;
        let plan = Plan::new(half, 5 * HOUR + half, 2 * HOUR);
        let raw = vec![(0, 1), (2, 3), (4, 6)];
        assert_eq!(plan, Plan { hours: vec![(1, 2), (3, 4)], raw, ..Plan::default() });
        let plan = Plan::new(1, 2, 100 * HOUR);
        assert_eq!(plan, Plan { raw: vec![(0, 1)], ..Plan::default() });
        let plan = Plan::new(half, 3 * HOUR, half);
        assert_eq!(plan, Plan { raw: vec![(0, 3)], ..Plan::default() });
    }

    /// Every moment of a window is in exactly one part, and days and hours are in one bucket.
    #[test]
    fn parts_of_a_plan_cover_its_window_once() {
        for (from, length, step) in [
            (0, 90 * HOUR, 25 * HOUR),
            (-50 * HOUR, 400 * HOUR + 1, 49 * HOUR),
            (HOUR - 1, 300 * HOUR, 36 * HOUR + 7),
            (17, 3 * HOUR, HOUR + 1),
            (5, 80 * HOUR, 1_000 * HOUR),
        ] {
            let plan = Plan::new(from, from + length, step);
            let mut hours: Vec<i64> = Vec::new();
            for (ranges, size) in [(&plan.raw, 1), (&plan.hours, 1), (&plan.days, 24)] {
                for number in ranges.iter().flat_map(|(first, end)| *first..*end) {
                    hours.extend((0..size).map(|hour| i64::from(number) * size + hour));
                }
            }
            hours.sort_unstable();
            let expected: Vec<_> = (from.div_euclid(HOUR)..=(from + length - 1).div_euclid(HOUR)).collect();
            assert_eq!(hours, expected, "{from} {length} {step}");
            for (first, end) in &plan.hours {
                for hour in i64::from(*first)..i64::from(*end) {
                    let bucket = |time: i64| (time - from).div_euclid(step);
                    assert_eq!(bucket(hour * HOUR), bucket((hour + 1) * HOUR - 1), "{hour}");
                }
            }
        }
    }
}
