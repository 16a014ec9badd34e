//! The hours of a day of measurement in one row, so that a year is 365 rows in place of 8,760. Packs repeat what roll-ups say and may be
//! thrown away at any time: they are made in the background from roll-ups that hardly change any more, and dropped with the first
//! change of one of them. That is, of days of the log that have ended, and of values that were more than a day old when they came.

use std::collections::{BTreeMap, BTreeSet};

use chrono::NaiveDate;
use futures::stream::BoxStream;
use signalbox_database::is_lock_conflict;
use signalbox_datapoint_log::ChunkPoint;
use signalbox_from_row::FromRow;
use sqlx::{Executor, PgConnection};

use super::{
    DAY, SeriesError,
    batch::Batch,
    chunk::ChunkKey,
    snapshot::Progress,
    summary::{Figures, Sum, Summary},
};

/// Bytes of an hour in each column.
const SUMS: usize = 24;
const EXTREMES: usize = 16;
const ENDS: usize = 56;

/// Hours of one channel, one day of measurement, counted from 1970, and one day of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, FromRow)]
pub(super) struct Group {
    pub(super) channel: i32,
    pub(super) number: i32,
    pub(super) day: NaiveDate,
}

impl Group {
    fn of(key: ChunkKey) -> Self {
        Self { channel: key.channel, number: key.hour.div_euclid(DAY), day: key.day }
    }

    /// Whether its values were more than a day old when they came: no more are expected.
    fn came_late(&self) -> bool {
        self.number < late_before(self.day)
    }
}

/// Values of days before this one, counted from 1970, are more than a day old when they come on `day`.
pub(super) fn late_before(day: NaiveDate) -> i32 {
    i32::try_from((day - NaiveDate::default()).num_days() - 1).unwrap_or(i32::MIN)
}

/// Lets the packs follow the fold that starts at `progress` and ends at position `next`, on `day`; returns before which day of the log
/// groups may be packed or in line. `None` if another process has folded without them: they are not read, thrown away in the background,
/// and made again.
pub(super) async fn keep_up(
    connection: &mut PgConnection,
    progress: &Progress,
    (next, day): (i64, NaiveDate),
) -> Result<Option<NaiveDate>, SeriesError> {
    let kept: Option<Option<NaiveDate>> = sqlx::query_scalar(
        "UPDATE series.pack_progress SET position = $2 WHERE position = $1 RETURNING ended_before",
    )
    .bind(progress.position)
    .bind(next)
    .fetch_optional(&mut *connection)
    .await?;
    let Some(ended_before) = kept else { return Ok(None) };
    // Not before all groups of a day are in line: a day of many is put there in parts.
    let packed_before = ended_before.max(Some(progress.day.min(day)));
    if day < progress.day {
        // A clock was set back: `forget` does not look for packs of these days any more, so they would become stale.
        let begun = packed_before.unwrap_or(day);
        sqlx::query("DELETE FROM series.packed_hours WHERE day >= $1 AND day < $2")
            .bind(begun)
            .bind(progress.day)
            .execute(&mut *connection)
            .await?;
        sqlx::query("DELETE FROM series.unpacked_hours WHERE day >= $1 AND day < $2")
            .bind(begun)
            .bind(progress.day)
            .execute(&mut *connection)
            .await?;
    }
    Ok(packed_before)
}

/// Packs are not read any more, until they have been thrown away.
pub(super) async fn give_up(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    connection.execute("UPDATE series.pack_progress SET position = -1").await?;
    Ok(())
}

/// Throws all packs away, which no query reads; they are made again as for a log that is folded up to `position`. False, and the
/// transaction is of no use, while something else has the tables open: a dump, say.
pub(super) async fn start_over(connection: &mut PgConnection, position: i64) -> Result<bool, SeriesError> {
    // Millions of them take minutes to be deleted, while nothing is folded.
    let emptied = connection
        .execute("SET LOCAL lock_timeout = '250ms'; TRUNCATE series.packed_hours, series.unpacked_hours")
        .await;
    match emptied {
        Err(error) if is_lock_conflict(&error) => return Ok(false),
        emptied => emptied?,
    };
    sqlx::query("UPDATE series.pack_progress SET position = $1, ended_before = NULL, has_late = false")
        .bind(position)
        .execute(connection)
        .await?;
    Ok(true)
}

/// Drops the packs of the hours that `batch` changes, and puts them in line again. The others change all the time, and have none.
pub(super) async fn forget(
    connection: &mut PgConnection,
    batch: &Batch,
    packed_before: NaiveDate,
) -> Result<(), SeriesError> {
    let is_packed = |group: &Group| group.came_late() || group.day < packed_before;
    let groups: BTreeSet<_> = batch.chunks.keys().copied().map(Group::of).filter(is_packed).collect();
    if groups.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "WITH changed AS (SELECT * FROM unnest($1::int[], $2::int[], $3::date[]) AS c (channel, number, day)),
              dropped AS (DELETE FROM series.packed_hours p USING changed c
                           WHERE p.channel = c.channel AND p.number = c.number AND p.day = c.day)
         INSERT INTO series.unpacked_hours (channel, number, day) SELECT channel, number, day FROM changed
             ON CONFLICT DO NOTHING",
    )
    .bind(groups.iter().map(|group| group.channel).collect::<Vec<_>>())
    .bind(groups.iter().map(|group| group.number).collect::<Vec<_>>())
    .bind(groups.iter().map(|group| group.day).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// A pack as it is stored: which hours of the day it has, and their figures one after the other, little-endian.
#[derive(Debug, Default, PartialEq)]
struct Packed {
    /// Bit `n` for hour `n`.
    hours: i32,
    sums: Vec<u8>,
    extremes: Vec<u8>,
    ends: Vec<u8>,
}

impl Packed {
    fn of(hours: &BTreeMap<usize, Summary>) -> Self {
        let mut packed = Self::default();
        for (hour, summary) in hours {
            packed.hours |= 1 << hour;
            packed.sums.extend(summary.count.to_le_bytes());
            packed.sums.extend(summary.sum.high.to_le_bytes());
            packed.sums.extend(summary.sum.low.to_le_bytes());
            packed.extremes.extend(summary.min.to_le_bytes());
            packed.extremes.extend(summary.max.to_le_bytes());
            for point in [&summary.first, &summary.last] {
                packed.ends.extend(point.time.to_le_bytes());
                packed.ends.extend(point.value.to_le_bytes());
                packed.ends.extend(point.position.to_le_bytes());
                packed.ends.extend(point.index.to_le_bytes());
            }
        }
        packed
    }
}

/// Stores the hours of groups, by their number in the day.
pub(super) async fn store(
    connection: &mut PgConnection,
    groups: &BTreeMap<Group, BTreeMap<usize, Summary>>,
) -> Result<(), sqlx::Error> {
    let packs: Vec<_> = groups.values().map(Packed::of).collect();
    sqlx::query(
        "INSERT INTO series.packed_hours (channel, number, day, hours, sums, extremes, ends)
         SELECT * FROM unnest($1::int[], $2::int[], $3::date[], $4::int[], $5::bytea[], $6::bytea[], $7::bytea[])
             ON CONFLICT (channel, number, day) DO UPDATE SET hours = excluded.hours, sums = excluded.sums,
                extremes = excluded.extremes, ends = excluded.ends",
    )
    .bind(groups.keys().map(|group| group.channel).collect::<Vec<_>>())
    .bind(groups.keys().map(|group| group.number).collect::<Vec<_>>())
    .bind(groups.keys().map(|group| group.day).collect::<Vec<_>>())
    .bind(packs.iter().map(|pack| pack.hours).collect::<Vec<_>>())
    .bind(packs.iter().map(|pack| pack.sums.as_slice()).collect::<Vec<_>>())
    .bind(packs.iter().map(|pack| pack.extremes.as_slice()).collect::<Vec<_>>())
    .bind(packs.iter().map(|pack| pack.ends.as_slice()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// Reads numbers one after the other; zeros where there are no bytes, as of figures that were not asked for.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn of(column: &'a Option<Vec<u8>>) -> Self {
        Self(column.as_deref().unwrap_or_default())
    }

    #[inline(always)]
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => [0; N],
        }
    }

    #[inline(always)]
    fn integer(&mut self) -> i64 {
        i64::from_le_bytes(self.take())
    }

    #[inline(always)]
    fn float(&mut self) -> f64 {
        f64::from_le_bytes(self.take())
    }

    #[inline(always)]
    fn point(&mut self) -> ChunkPoint {
        ChunkPoint {
            time: self.integer(),
            value: self.float(),
            position: self.integer(),
            index: u32::from_le_bytes(self.take()),
        }
    }
}

/// A group, and its hours with the figures that were asked for if it is packed.
#[derive(Debug, FromRow)]
pub(super) struct Row {
    #[row(flatten)]
    pub(super) group: Group,
    hours: Option<i32>,
    sums: Option<Vec<u8>>,
    extremes: Option<Vec<u8>>,
    ends: Option<Vec<u8>>,
}

impl Row {
    /// Whether it has the bytes of all of its hours.
    pub(super) fn is_whole(&self) -> bool {
        let count = self.hours.unwrap_or_default().count_ones() as usize;
        let has =
            |bytes: &Option<Vec<u8>>, size| bytes.as_ref().is_none_or(|bytes| bytes.len() == count * size);
        count > 0 && has(&self.sums, SUMS) && has(&self.extremes, EXTREMES) && has(&self.ends, ENDS)
    }

    /// Its hours since 1970 with their figures.
    pub(super) fn summaries(&self) -> impl Iterator<Item = (i32, Summary)> {
        let (mut sums, mut extremes) = (Bytes::of(&self.sums), Bytes::of(&self.extremes));
        let mut ends = Bytes::of(&self.ends);
        let (hours, first) = (self.hours.unwrap_or_default(), self.group.number.saturating_mul(DAY));
        (0..DAY).filter(move |hour| hours & 1 << hour != 0).map(move |hour| {
            let summary = Summary {
                count: sums.integer(),
                sum: Sum { high: sums.float(), low: sums.float() },
                min: extremes.float(),
                max: extremes.float(),
                first: ends.point(),
                last: ends.point(),
            };
            (first + hour, summary)
        })
    }
}

/// The days that have some of `ranges` of hours.
fn days(ranges: &[(i32, i32)]) -> Vec<(i32, i32)> {
    let mut days: Vec<(i32, i32)> = Vec::new();
    for (first, end) in ranges {
        let (first, end) = (first.div_euclid(DAY), (end - 1).div_euclid(DAY) + 1);
        match days.last_mut() {
            Some(last) if last.1 >= first => last.1 = last.1.max(end),
            _ => days.push((first, end)),
        }
    }
    days
}

/// The groups of `channels` that have hours in `ranges`, which are in order. A pack counts only beside the roll-up of its day: the release
/// before moves roll-ups whose values are gone, and leaves their packs.
pub(super) fn rows<'c>(
    connection: &'c mut PgConnection,
    channels: &[i32],
    ranges: &[(i32, i32)],
    figures: Figures,
) -> BoxStream<'c, Result<Row, sqlx::Error>> {
    let (firsts, ends): (Vec<i32>, Vec<i32>) = days(ranges).into_iter().unzip();
    let are = |some| figures == Figures::All || figures == some;
    let query = sqlx::query_as(
        "SELECT r.channel, r.number, r.day, p.hours, p.sums, p.extremes, p.ends
           FROM unnest($1::int[]) AS c (channel)
          CROSS JOIN unnest($2::int[], $3::int[]) AS w (first, ending)
          CROSS JOIN LATERAL (
            SELECT s.channel, s.number, s.day FROM series.rollups s
             WHERE s.channel = c.channel AND s.span = 24 AND s.number >= w.first AND s.number < w.ending OFFSET 0) AS r
           LEFT JOIN LATERAL (
            SELECT k.hours, CASE WHEN $4::bool THEN k.sums END AS sums,
                   CASE WHEN $5::bool THEN k.extremes END AS extremes, CASE WHEN $6::bool THEN k.ends END AS ends
              FROM series.packed_hours k
             WHERE k.channel = r.channel AND k.number = r.number AND k.day = r.day OFFSET 0) AS p ON true",
    );
    let query = query.bind(channels.to_vec()).bind(firsts).bind(ends);
    let query = query.bind(are(Figures::Sums)).bind(are(Figures::Extremes)).bind(are(Figures::Ends));
    query.fetch(connection)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(number: i64) -> Summary {
        let point = |index| ChunkPoint { time: -number, value: 0.5, position: number, index };
        let sum = Sum { high: number as f64, low: 1e-20 };
        Summary { count: number, sum, min: -1.5, max: f64::MAX, first: point(0), last: point(u32::MAX) }
    }

    #[test]
    fn packs_hold_what_they_were_made_of() {
        let hours: BTreeMap<usize, Summary> = [0, 7, 23].map(|hour| (hour, summary(hour as i64 + 1))).into();
        let Packed { hours: bits, sums, extremes, ends } = Packed::of(&hours);
        let group = Group { channel: 1, number: -2, day: NaiveDate::default() };
        let (sums, extremes, ends) = (Some(sums), Some(extremes), Some(ends));
        let mut row = Row { group, hours: Some(bits), sums, extremes, ends };
        assert!(row.is_whole());
        let found: Vec<_> = row.summaries().collect();
        let expected: Vec<_> = hours.iter().map(|(hour, summary)| (*hour as i32 - 48, *summary)).collect();
        assert_eq!(found, expected);
        row.sums.as_mut().unwrap().pop();
        assert!(!row.is_whole(), "cut off");
        row.sums = None;
        assert!(row.is_whole(), "not asked for");
        assert_eq!(row.summaries().map(|(_, summary)| summary.max()).collect::<Vec<_>>(), [f64::MAX; 3]);
    }

    #[test]
    fn days_of_ranges_are_there_once() {
        assert_eq!(days(&[(-1, 1), (5, 7), (24, 25), (96, 121)]), [(-1, 2), (4, 6)]);
        assert_eq!(days(&[]), []);
    }
}
