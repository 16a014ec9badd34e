//! Aggregates per hour and day of measurement, kept by the fold together with the chunks, in the same transaction: they have
//! the same progress, are as idempotent as it is, and a rebuild makes both. A roll-up belongs to one day of the log, as a
//! chunk does; retention moves it to `ops.kept_rollups` when it drops the values, see `kept`.
//!
//! Added points are added to the roll-ups. Where a point was deleted, the hour is computed again from its chunk, and the day from
//! its hours. After an upgrade there are days without roll-ups: [`fill`] makes them a day at a time, and until then queries
//! read the chunks of those days.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use chrono::NaiveDate;
use futures::{TryStreamExt, stream::BoxStream};
use signalbox_datapoint_log::{ChunkPoint, codec::decode_chunk};
use signalbox_from_row::FromRow;
use sqlx::{Executor, PgConnection, PgPool, Row};

use super::{
    DAY, SeriesError,
    batch::Batch,
    chunk::{self, ChunkKey, Names, bytes_of, readable},
    packs::{self, Group},
    snapshot::{Progress, begin_fold},
    summary::{Sum, Summary, summarised},
};
use crate::runner::END_HUNG;

/// Roll-ups of one statement at most.
const AT_ONCE: usize = 10_000;

/// One hour or day of measurement, of one channel, in one day of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RollupKey {
    pub(super) channel: i32,
    /// Hours: 1 or [`DAY`].
    pub(super) span: i32,
    /// Counts hours or days since 1970.
    pub(super) number: i32,
    /// Day of the log.
    pub(super) day: NaiveDate,
}

impl RollupKey {
    fn hour(key: ChunkKey) -> Self {
        Self { channel: key.channel, span: 1, number: key.hour, day: key.day }
    }

    fn day(key: ChunkKey) -> Self {
        Self { channel: key.channel, span: DAY, number: key.hour.div_euclid(DAY), day: key.day }
    }
}

#[derive(Debug, FromRow)]
pub(super) struct RollupRow {
    pub(super) channel: i32,
    pub(super) span: i32,
    pub(super) number: i32,
    pub(super) day: NaiveDate,
    count: i64,
    sum: f64,
    sum_low: f64,
    min: f64,
    max: f64,
    first_time: i64,
    first_value: f64,
    first_position: i64,
    first_index: i32,
    last_time: i64,
    last_value: f64,
    last_position: i64,
    last_index: i32,
    /// Whether its values are gone.
    #[row(default)]
    pub(super) is_kept: bool,
}

impl RollupRow {
    fn key(&self) -> RollupKey {
        RollupKey { channel: self.channel, span: self.span, number: self.number, day: self.day }
    }

    pub(super) fn summary(&self) -> Summary {
        let point =
            |time, value, position, index: i32| ChunkPoint { time, value, position, index: index as u32 };
        Summary {
            count: self.count,
            sum: Sum { high: self.sum, low: self.sum_low },
            min: self.min,
            max: self.max,
            first: point(self.first_time, self.first_value, self.first_position, self.first_index),
            last: point(self.last_time, self.last_value, self.last_position, self.last_index),
        }
    }
}

type Rollups = BTreeMap<RollupKey, Summary>;

fn add(rollups: &mut Rollups, key: RollupKey, summary: &Summary) {
    rollups.entry(key).and_modify(|sum| *sum = sum.plus(summary)).or_insert(*summary);
}

/// The changes of roll-ups by a batch: sums to add, and hours to compute again. It is taken from the batch before stored points are
/// merged into it.
#[derive(Debug, Default)]
pub(super) struct Additions {
    added: BTreeMap<ChunkKey, Summary>,
    deleted: BTreeSet<ChunkKey>,
}

impl Additions {
    pub(super) fn of(batch: &Batch) -> Self {
        let mut additions = Self::default();
        for (key, changes) in &batch.chunks {
            if !changes.deleted.is_empty() {
                additions.deleted.insert(*key);
            } else if let Some(summary) = summarised(&changes.points) {
                additions.added.insert(*key, summary);
            }
        }
        additions
    }

    /// Writes them to `schema`, whose chunks have the points already.
    pub(super) async fn write(
        mut self,
        connection: &mut PgConnection,
        schema: &str,
    ) -> Result<(), SeriesError> {
        let unrolled = unrolled_days(&mut *connection, schema).await?;
        self.added.retain(|key, _| !unrolled.contains(&key.day));
        self.deleted.retain(|key| !unrolled.contains(&key.day));
        let mut rollups = Rollups::new();
        for (key, summary) in &self.added {
            add(&mut rollups, RollupKey::hour(*key), summary);
            add(&mut rollups, RollupKey::day(*key), summary);
        }
        let again: BTreeSet<_> = self.deleted.iter().map(|key| RollupKey::day(*key)).collect();
        // Days are computed from their hours, so these are written first.
        rollups.retain(|key, _| !again.contains(key));
        let keys: Vec<_> = rollups.keys().copied().collect();
        for row in rows(&mut *connection, schema, &keys).await? {
            add(&mut rollups, row.key(), &row.summary());
        }
        let mut gone = Vec::new();
        for key in &self.deleted {
            match chunk_summary(&mut *connection, schema, *key).await? {
                Some(summary) => {
                    rollups.insert(RollupKey::hour(*key), summary);
                }
                None => gone.push(RollupKey::hour(*key)),
            }
        }
        upsert(&mut *connection, schema, &rollups).await?;
        delete(&mut *connection, schema, &gone).await?;
        let (mut days, mut gone) = (Rollups::new(), Vec::new());
        for key in again {
            let hours: Vec<_> = (key.number.saturating_mul(DAY)..).take(DAY as usize).collect();
            let hours: Vec<_> =
                hours.into_iter().map(|number| RollupKey { span: 1, number, ..key }).collect();
            let hours = rows(&mut *connection, schema, &hours).await?;
            match hours.iter().map(RollupRow::summary).reduce(|sum, hour| sum.plus(&hour)) {
                Some(summary) => {
                    days.insert(key, summary);
                }
                None => gone.push(key),
            }
        }
        upsert(&mut *connection, schema, &days).await?;
        delete(connection, schema, &gone).await
    }
}

/// The summary of all points of a chunk.
async fn chunk_summary(
    connection: &mut PgConnection,
    schema: &str,
    key: ChunkKey,
) -> Result<Option<Summary>, SeriesError> {
    let mut wanted = Names::default();
    wanted.push(key, 0);
    let mut summary: Option<Summary> = None;
    for head in chunk::heads(&mut *connection, schema, &wanted).await? {
        let mut name = Names::default();
        name.push(key, head.part);
        for row in bytes_of(&mut *connection, schema, "points", &name).await? {
            let part = row.points().and_then(|points| summarised(&points));
            summary = match (summary, part) {
                (Some(sum), Some(part)) => Some(sum.plus(&part)),
                (sum, part) => sum.or(part),
            };
        }
    }
    Ok(summary)
}

/// Makes the roll-ups follow the fold that starts at `progress`. If another process has folded without them, all are thrown away
/// and made again.
pub(super) async fn keep_up(
    connection: &mut PgConnection,
    schema: &str,
    progress: &Progress,
    next: i64,
) -> Result<(), SeriesError> {
    let sql = format!("UPDATE {schema}.rollup_progress SET position = $2 WHERE position = $1");
    let moved = sqlx::query(&sql).bind(progress.position).bind(next).execute(&mut *connection).await?;
    if moved.rows_affected() > 0 {
        return Ok(());
    }
    if schema == "series" {
        packs::give_up(&mut *connection).await?;
    }
    let statements = format!(
        "DELETE FROM {schema}.rollups;
         DELETE FROM {schema}.unrolled_days;
         INSERT INTO {schema}.unrolled_days SELECT DISTINCT day FROM {schema}.hours;
         UPDATE {schema}.rollup_progress SET position = {next}"
    );
    connection.execute(statements.as_str()).await?;
    Ok(())
}

/// The days of the log whose points have no roll-ups.
pub(super) async fn unrolled_days(
    connection: &mut PgConnection,
    schema: &str,
) -> Result<HashSet<NaiveDate>, SeriesError> {
    let sql = format!("SELECT day FROM {schema}.unrolled_days");
    let days: Vec<NaiveDate> = sqlx::query_scalar(&sql).fetch_all(connection).await?;
    Ok(days.into_iter().collect())
}

/// Whether the roll-ups belong to chunks that are folded up to `progress`.
pub(super) async fn is_current(
    connection: &mut PgConnection,
    progress: &Progress,
) -> Result<bool, SeriesError> {
    let position: i64 =
        sqlx::query_scalar("SELECT position FROM series.rollup_progress").fetch_one(connection).await?;
    Ok(position == progress.position)
}

/// Makes the roll-ups of the newest day of the log that has none; true when there is no such day.
pub(super) async fn fill(pool: &PgPool) -> Result<bool, SeriesError> {
    let is_filled: bool =
        sqlx::query_scalar("SELECT NOT EXISTS (SELECT FROM series.unrolled_days)").fetch_one(pool).await?;
    if is_filled {
        return Ok(true);
    }
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    let (name, value) = END_HUNG;
    let settings = format!("SET LOCAL synchronous_commit = off; SET LOCAL {name} = '{value}'");
    transaction.execute(settings.as_str()).await?;
    begin_fold(&mut transaction).await?;
    let day: Option<NaiveDate> =
        sqlx::query_scalar("SELECT max(day) FROM series.unrolled_days").fetch_one(&mut *transaction).await?;
    let Some(day) = day else { return Ok(true) };
    sqlx::query("DELETE FROM series.rollups WHERE day = $1").bind(day).execute(&mut *transaction).await?;
    let channels: Vec<i32> = sqlx::query_scalar("SELECT DISTINCT channel FROM series.chunks WHERE day = $1")
        .bind(day)
        .fetch_all(&mut *transaction)
        .await?;
    for channel in channels {
        let rollups = of_channel(&mut transaction, channel, day).await?;
        upsert(&mut transaction, "series", &rollups).await?;
    }
    sqlx::query("DELETE FROM series.unrolled_days WHERE day = $1")
        .bind(day)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(false)
}

/// The roll-ups of all chunks of `channel` in one day of the log.
async fn of_channel(
    connection: &mut PgConnection,
    channel: i32,
    day: NaiveDate,
) -> Result<Rollups, SeriesError> {
    let mut rollups = Rollups::new();
    let mut chunks = sqlx::query("SELECT hour, points FROM series.chunks WHERE channel = $1 AND day = $2")
        .bind(channel)
        .bind(day)
        .fetch(connection);
    while let Some(row) = chunks.try_next().await? {
        let hour = row.try_get(0)?;
        let points = readable(decode_chunk(row.try_get(1)?), channel, hour).unwrap_or_default();
        if let Some(summary) = summarised(&points) {
            let key = ChunkKey { channel, hour, day };
            add(&mut rollups, RollupKey::hour(key), &summary);
            add(&mut rollups, RollupKey::day(key), &summary);
        }
    }
    Ok(rollups)
}

/// How many roll-ups differ between `series` and `other`. Sums were added in another order and may differ in their last digits.
pub(super) async fn differences(connection: &mut PgConnection, other: &str) -> Result<i64, SeriesError> {
    let progress = Progress::read(&mut *connection, "series").await?;
    let is_whole = is_current(&mut *connection, &progress).await?
        && unrolled_days(&mut *connection, "series").await?.is_empty();
    if !is_whole {
        return Ok(0);
    }
    let same = "(count, min, max, first_time, first_value, first_position, first_index, last_time, last_value, last_position, last_index)";
    let of = |table: &str| same.replace('(', &format!("({table}.")).replace(", ", &format!(", {table}."));
    // PostgreSQL refuses results that leave the range of a float, at both of its ends.
    let sql = format!(
        "SELECT count(*) FROM series.rollups l FULL JOIN {other}.rollups b USING (channel, span, number, day)
          WHERE {} IS DISTINCT FROM {}
             OR CASE WHEN l.sum = b.sum THEN false
                     WHEN greatest(abs(l.sum), abs(b.sum)) > 1e300 AND (l.sum > 0) <> (b.sum > 0) THEN true
                     ELSE abs(l.sum - b.sum) > 1e-9 * greatest(abs(l.sum), abs(b.sum), 1e-290) END",
        of("l"),
        of("b"),
    );
    Ok(sqlx::query_scalar(&sql).fetch_one(connection).await?)
}

/// Which roll-ups are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// All, and hours by their packs, but those whose values are gone.
    Packed {
        /// Whether there are any of the latter.
        has_kept: bool,
    },
    /// All.
    All,
    /// Those whose values are gone.
    Kept,
}

/// The roll-ups of `channels` of one span in `ranges` of numbers, in no order.
pub(super) fn of_ranges<'c>(
    connection: &'c mut PgConnection,
    source: Source,
    channels: &[i32],
    span: i32,
    ranges: &[(i32, i32)],
) -> BoxStream<'c, Result<RollupRow, sqlx::Error>> {
    let (firsts, ends): (Vec<i32>, Vec<i32>) = ranges.iter().copied().unzip();
    // A scan of the index for each channel and range, whatever the planner thinks of their number.
    let query = sqlx::query_as(
        "SELECT r.* FROM unnest($1::int[]) AS c (channel)
          CROSS JOIN unnest($3::int[], $4::int[]) AS w (first, ending)
          CROSS JOIN LATERAL (
            SELECT s.* FROM (
                SELECT l.*, false AS is_kept FROM series.rollups l WHERE $5::bool
                 UNION ALL
                SELECT channel, span, number, day, count, sum, sum_low, min, max, first_time, first_value, first_position,
                       first_index, last_time, last_value, last_position, last_index, true FROM ops.kept_rollups) AS s
             WHERE s.channel = c.channel AND s.span = $2 AND s.number >= w.first AND s.number < w.ending OFFSET 0) AS r",
    );
    let query = query.bind(channels.to_vec()).bind(span).bind(firsts).bind(ends);
    query.bind(source != Source::Kept).fetch(connection)
}

/// The hours of `groups`.
pub(super) async fn of_groups(
    connection: &mut PgConnection,
    groups: &[Group],
) -> Result<Vec<RollupRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT r.* FROM unnest($1::int[], $2::int[], $3::date[]) AS g (channel, number, day)
          CROSS JOIN LATERAL (
            SELECT * FROM series.rollups s WHERE s.channel = g.channel AND s.span = 1
               AND s.number >= 24 * g.number AND s.number < 24 * g.number + 24 AND s.day = g.day OFFSET 0) AS r",
    )
    .bind(groups.iter().map(|group| group.channel).collect::<Vec<_>>())
    .bind(groups.iter().map(|group| group.number).collect::<Vec<_>>())
    .bind(groups.iter().map(|group| group.day).collect::<Vec<_>>())
    .fetch_all(connection)
    .await
}

async fn rows(
    connection: &mut PgConnection,
    schema: &str,
    keys: &[RollupKey],
) -> Result<Vec<RollupRow>, SeriesError> {
    let sql = format!(
        "SELECT r.* FROM unnest($1::int[], $2::int[], $3::int[], $4::date[]) AS w (channel, span, number, day)
           JOIN {schema}.rollups r USING (channel, span, number, day)"
    );
    let mut found = Vec::new();
    for keys in keys.chunks(AT_ONCE) {
        let query = bind_keys(&sql, keys);
        found.extend(query.fetch_all(&mut *connection).await?);
    }
    Ok(found)
}

fn bind_keys<'q>(
    sql: &'q str,
    keys: &[RollupKey],
) -> sqlx::query::QueryAs<'q, sqlx::Postgres, RollupRow, sqlx::postgres::PgArguments> {
    sqlx::query_as(sql)
        .bind(keys.iter().map(|key| key.channel).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.span).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.number).collect::<Vec<_>>())
        .bind(keys.iter().map(|key| key.day).collect::<Vec<_>>())
}

async fn delete(connection: &mut PgConnection, schema: &str, keys: &[RollupKey]) -> Result<(), SeriesError> {
    let sql = format!(
        "DELETE FROM {schema}.rollups r USING unnest($1::int[], $2::int[], $3::int[], $4::date[]) AS w (channel, span, number, day)
          WHERE r.channel = w.channel AND r.span = w.span AND r.number = w.number AND r.day = w.day RETURNING r.*"
    );
    for keys in keys.chunks(AT_ONCE) {
        bind_keys(&sql, keys).fetch_all(&mut *connection).await?;
    }
    Ok(())
}

async fn upsert(connection: &mut PgConnection, schema: &str, rollups: &Rollups) -> Result<(), SeriesError> {
    let sql = format!(
        "INSERT INTO {schema}.rollups (channel, span, number, day, count, sum, sum_low, min, max,
            first_time, first_value, first_position, first_index, last_time, last_value, last_position, last_index)
         SELECT * FROM unnest($1::int[], $2::int[], $3::int[], $4::date[], $5::bigint[], $6::float8[], $7::float8[], $8::float8[],
            $9::float8[], $10::bigint[], $11::float8[], $12::bigint[], $13::int[], $14::bigint[], $15::float8[], $16::bigint[], $17::int[])
             ON CONFLICT (channel, span, number, day) DO UPDATE SET count = excluded.count, sum = excluded.sum,
                sum_low = excluded.sum_low, min = excluded.min, max = excluded.max,
                first_time = excluded.first_time, first_value = excluded.first_value,
                first_position = excluded.first_position, first_index = excluded.first_index,
                last_time = excluded.last_time, last_value = excluded.last_value,
                last_position = excluded.last_position, last_index = excluded.last_index"
    );
    let all: Vec<_> = rollups.iter().collect();
    for part in all.chunks(AT_ONCE) {
        sqlx::query(&sql)
            .bind(column(part, |key, _| key.channel))
            .bind(column(part, |key, _| key.span))
            .bind(column(part, |key, _| key.number))
            .bind(column(part, |key, _| key.day))
            .bind(column(part, |_, summary| summary.count))
            .bind(column(part, |_, summary| summary.sum.high))
            .bind(column(part, |_, summary| summary.sum.low))
            .bind(column(part, |_, summary| summary.min))
            .bind(column(part, |_, summary| summary.max))
            .bind(column(part, |_, summary| summary.first.time))
            .bind(column(part, |_, summary| summary.first.value))
            .bind(column(part, |_, summary| summary.first.position))
            .bind(column(part, |_, summary| summary.first.index as i32))
            .bind(column(part, |_, summary| summary.last.time))
            .bind(column(part, |_, summary| summary.last.value))
            .bind(column(part, |_, summary| summary.last.position))
            .bind(column(part, |_, summary| summary.last.index as i32))
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

fn column<T>(part: &[(&RollupKey, &Summary)], of: impl Fn(&RollupKey, &Summary) -> T) -> Vec<T> {
    part.iter().map(|(key, summary)| of(key, summary)).collect()
}
