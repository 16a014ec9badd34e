//! Points of a few channels since a point in time, thinned out. The cost is bounded by the number of requested
//! points, not by the size of the window: where many points fall between two requested ones, samples replace them.

use signalbox_boxed::boxed;
use std::collections::{BTreeMap, HashSet};

use chrono::{DateTime, NaiveDate, Utc};
use signalbox_datapoint_log::{
    ChunkPoint,
    codec::{decode_chunk, decode_firsts, decode_samples},
    micros,
};
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};

use super::{
    Datapoint, SeriesError,
    chunk::{ChunkKey, Names, bytes_of, readable},
    first_day_since, hour_of,
    latest::folded_latest,
    snapshot::{Snapshot, Tail},
    thin::{Entry, thin},
};

pub use super::thin::Aggregate;

/// Up to this many points of a channel are all read, and thinned out exactly.
const EXACT: i64 = 8192;
/// Samples that a row carries itself, and beside it.
const BRIEF: i64 = 8;
const DIGEST: i64 = 64;
/// Rows of fewer points have no samples beside them.
const LEAST_DIGEST: i32 = 1024;
/// Rows that begin before the window and are larger are cut by their samples.
const LARGE: i32 = 8192;

/// The request.
#[derive(Debug, Clone)]
pub struct Window {
    /// Integers of the channels.
    pub channels: Vec<i32>,
    /// Measured at or after.
    pub from: DateTime<Utc>,
    /// Measured before; `None` for all since.
    pub to: Option<DateTime<Utc>>,
    /// Points of each channel at most.
    pub max_points: usize,
    /// The treatment of the points in between.
    pub aggregate: Aggregate,
}

impl Window {
    /// From when and before when, in microseconds.
    fn ends(&self) -> (i64, i64) {
        (micros(self.from), self.to.map_or(i64::MAX, micros))
    }
}

#[derive(Debug, FromRow)]
struct Row {
    channel: i32,
    hour: i32,
    day: NaiveDate,
    part: i32,
    count: i32,
    min_time: i64,
    max_time: i64,
    brief: Option<Vec<u8>>,
    /// Of small rows only.
    points: Option<Vec<u8>>,
}

/// How a row is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Detail {
    Brief,
    Digest,
    Points,
}

/// The points of each channel in `window`, oldest first.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn series(pool: &PgPool, window: &Window) -> Result<BTreeMap<i32, Vec<Datapoint>>, SeriesError> {
    let (from, to) = window.ends();
    let mut snapshot = Snapshot::open(pool).await?;
    let tail = snapshot.tail(Some(from)).await?;
    let rows = rows(snapshot.connection(), window).await?;
    let mut entries: BTreeMap<i32, Vec<Entry>> =
        window.channels.iter().map(|channel| (*channel, Vec::new())).collect();
    read_rows(snapshot.connection(), window, rows, &tail, &mut entries).await?;
    let newest = folded_latest(snapshot.connection(), &window.channels).await?;
    snapshot.close();
    for point in &tail.points {
        if let Some(entries) = entries.get_mut(&point.channel)
            && (from..to).contains(&point.point.time)
        {
            entries.push(Entry::Point(*point));
        }
    }
    let thinned = entries.into_iter().map(|(channel, mut entries)| {
        // Rows were read in their order, so there are long runs, which the stable sort is quick with.
        entries.sort_by_key(Entry::order);
        // Samples show the start of a row, so the newest point is looked up separately.
        let known = newest.iter().find(|point| point.channel == channel);
        let known = known
            .filter(|point| (from..to).contains(&point.point.time) && !tail.is_deleted(&point.point))
            .copied();
        let last =
            entries.iter().filter_map(Entry::point).chain(known).max_by_key(|point| point.point.order());
        // The row with the newest points before `to` may have lost all of them since.
        let last = last.or_else(|| entries.last().map(Entry::first));
        (channel, thin(&entries, last, window.max_points, window.aggregate))
    });
    Ok(thinned.collect())
}

async fn rows(connection: &mut PgConnection, window: &Window) -> Result<Vec<Row>, SeriesError> {
    let (from, to) = window.ends();
    let day = first_day_since(from);
    let mut rows: Vec<Row> = sqlx::query_as(
        "SELECT channel, hour, day, part, count, min_time, max_time, brief,
                CASE WHEN brief IS NULL THEN points END AS points
           FROM series.chunks
          WHERE channel = ANY($1) AND hour BETWEEN $2 AND $5 AND day >= $3 AND max_time >= $4 AND min_time < $6",
    )
    .bind(&window.channels)
    .bind(hour_of(from))
    .bind(day)
    .bind(from)
    .bind(hour_of(to - 1))
    .bind(to)
    .fetch_all(connection)
    .await?;
    rows.sort_unstable_by_key(|row| row.min_time);
    Ok(rows)
}

async fn read_rows(
    connection: &mut PgConnection,
    window: &Window,
    rows: Vec<Row>,
    tail: &Tail,
    entries: &mut BTreeMap<i32, Vec<Entry>>,
) -> Result<(), SeriesError> {
    let (from, to) = window.ends();
    let newest = newest_rows(&rows, window);
    let mut totals: BTreeMap<i32, i64> = BTreeMap::new();
    rows.iter().for_each(|row| *totals.entry(row.channel).or_default() += i64::from(row.count));
    let changed: HashSet<(i32, i32)> =
        tail.deleted_in.iter().map(|(channel, hour, _)| (*channel, *hour)).collect();
    let mut add = |channel: i32, found: Vec<Entry>| {
        if let Some(entries) = entries.get_mut(&channel) {
            entries.extend(found);
        }
    };
    let as_points = |ChunkKey { channel, hour, day }: ChunkKey, bytes: &[u8]| -> Vec<Entry> {
        let is_selected = |point: &ChunkPoint| (from..to).contains(&point.time) && !tail.is_deleted(point);
        let points = readable(decode_chunk(bytes), channel, hour).unwrap_or_default();
        let points = points.into_iter().filter(is_selected);
        points.map(|point| Entry::Point(Datapoint { channel, day, point })).collect()
    };
    let as_samples = |ChunkKey { channel, hour, day }: ChunkKey, bytes: &[u8]| -> Vec<Entry> {
        if window.aggregate == Aggregate::None {
            // Only first points are shown.
            let firsts = readable(decode_firsts(bytes), channel, hour).unwrap_or_default();
            let firsts = firsts.into_iter().filter(|(_, first)| first.time >= from);
            return firsts
                .map(|(count, point)| Entry::Many(count, Datapoint { channel, day, point }))
                .collect();
        }
        let samples = readable(decode_samples(bytes), channel, hour).unwrap_or_default();
        let samples = samples.into_iter().filter(|sample| sample.first.time >= from);
        samples.map(|sample| Entry::Sample { channel, day, sample: Box::new(sample) }).collect()
    };
    let (mut whole, mut digests) = (Names::default(), Names::default());
    for row in rows {
        let key = ChunkKey { channel: row.channel, hour: row.hour, day: row.day };
        if let Some(bytes) = &row.points {
            add(row.channel, as_points(key, bytes));
            continue;
        }
        // Samples do not show where a row ends.
        let is_last = row.max_time >= to || newest.get(&row.channel) == Some(&row.max_time);
        let is_changed = is_last || changed.contains(&(row.channel, row.hour));
        match detail(&row, window, from, totals[&row.channel], is_changed) {
            Detail::Points => whole.push(key, row.part),
            Detail::Digest => digests.push(key, row.part),
            Detail::Brief => {
                let bytes = row.brief.unwrap_or_default();
                add(row.channel, as_samples(key, &bytes));
            }
        }
    }
    for row in bytes_of(connection, "series", "points", &whole).await? {
        add(row.channel, as_points(row.key(), &row.bytes));
    }
    for row in bytes_of(connection, "series", "digest", &digests).await? {
        add(row.channel, as_samples(row.key(), &row.bytes));
    }
    Ok(())
}

/// The newest time of each channel in `rows` that lie before the end of the window, if it has one; of windows up to now, the
/// newest point is known.
fn newest_rows(rows: &[Row], window: &Window) -> BTreeMap<i32, i64> {
    let mut newest = BTreeMap::new();
    if window.to.is_some() {
        for row in rows {
            let time = newest.entry(row.channel).or_insert(row.max_time);
            *time = row.max_time.max(*time);
        }
    }
    newest
}

fn detail(row: &Row, window: &Window, from: i64, total: i64, is_changed: bool) -> Detail {
    let share = i64::from(row.count) * window.max_points as i64 / total.max(1) + 1;
    let is_cut = row.min_time < from && row.count <= LARGE;
    if total <= EXACT || is_cut || is_changed || share > DIGEST {
        Detail::Points
    } else if share <= BRIEF {
        Detail::Brief
    } else if row.count >= LEAST_DIGEST {
        Detail::Digest
    } else {
        Detail::Points
    }
}
