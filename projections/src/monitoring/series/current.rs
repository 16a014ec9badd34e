//! The current value of each channel: the newest by the earlier of measurement and arrival, so that a device whose
//! clock is ahead does not hide later values.
//!
//! A point's rank is fixed when it arrives, so the fold needs no history. Only where the current point is deleted is its
//! successor looked for in the chunks.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use signalbox_datapoint_log::{ChunkPoint, codec::decode_chunk, micros, recorded_times};
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};

use super::{
    Datapoint, SeriesError,
    chunk::{DELETED, channels_of, newest_in_chunks, readable},
    ranked::Ranked,
    snapshot::{Tail, begin_fold},
};

/// Channels that are looked up in one transaction after an upgrade.
const AT_ONCE: i64 = 100;
/// Limit of the positions whose arrival times are read at once.
const ROWS: usize = 10_000;

#[derive(Debug, FromRow)]
struct CurrentRow {
    channel: i32,
    rank: i64,
    time: i64,
    value: f64,
    day: NaiveDate,
    position: i64,
    index: i32,
}

impl From<CurrentRow> for Ranked {
    fn from(row: CurrentRow) -> Self {
        let CurrentRow { channel, rank, time, value, day, position, index } = row;
        let point = ChunkPoint { time, value, position, index: index as u32 };
        Self { rank, point: Datapoint { channel, day, point } }
    }
}

/// The current points of all channels that are folded, as `tail` leaves them. A channel that was not looked up since an
/// upgrade shows its newest by measurement.
pub(super) async fn folded(connection: &mut PgConnection, tail: &Tail) -> Result<Vec<Ranked>, SeriesError> {
    let rows: Vec<CurrentRow> = sqlx::query_as(
        "SELECT l.channel, coalesce(c.rank, l.time) AS rank, coalesce(c.time, l.time) AS time,
                coalesce(c.value, l.value) AS value, coalesce(c.day, l.day) AS day,
                coalesce(c.position, l.position) AS position, coalesce(c.index, l.index) AS index
           FROM series.latest l LEFT JOIN series.current c ON c.channel = l.channel",
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut found = Vec::with_capacity(rows.len());
    for ranked in rows.into_iter().map(Ranked::from) {
        if tail.is_deleted(&ranked.point.point) {
            let channel = ranked.point.channel;
            found.extend(
                current_in_chunks(&mut *connection, "series", channel, (NaiveDate::default(), &tail.deleted))
                    .await?,
            );
        } else {
            found.push(ranked);
        }
    }
    Ok(found)
}

/// Stores `points` that are newer than the stored ones.
pub(super) async fn upsert(
    connection: &mut PgConnection,
    schema: &str,
    points: impl Iterator<Item = Ranked>,
) -> Result<(), SeriesError> {
    let points: Vec<_> = points.collect();
    if points.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO {schema}.current AS c (channel, rank, time, value, day, position, index)
         SELECT * FROM unnest($1::int[], $2::bigint[], $3::bigint[], $4::float8[], $5::date[], $6::bigint[], $7::int[])
             ON CONFLICT (channel) DO UPDATE SET rank = excluded.rank, time = excluded.time, value = excluded.value,
                day = excluded.day, position = excluded.position, index = excluded.index
          WHERE (c.rank, c.position, c.index) < (excluded.rank, excluded.position, excluded.index)"
    );
    sqlx::query(&sql)
        .bind(points.iter().map(|ranked| ranked.point.channel).collect::<Vec<_>>())
        .bind(points.iter().map(|ranked| ranked.rank).collect::<Vec<_>>())
        .bind(points.iter().map(|ranked| ranked.point.point.time).collect::<Vec<_>>())
        .bind(points.iter().map(|ranked| ranked.point.point.value).collect::<Vec<_>>())
        .bind(points.iter().map(|ranked| ranked.point.day).collect::<Vec<_>>())
        .bind(points.iter().map(|ranked| ranked.point.point.position).collect::<Vec<_>>())
        .bind(points.iter().map(|ranked| ranked.point.point.index as i32).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// Where the current point was deleted, another one becomes the current one.
pub(super) async fn forget_deleted(
    connection: &mut PgConnection,
    schema: &str,
    deleted: &[(i32, i64, u32)],
) -> Result<(), SeriesError> {
    let statement = format!(
        "SELECT DISTINCT c.channel FROM {schema}.current c
           JOIN {DELETED} ON c.channel = d.channel AND c.position = d.position AND c.index = d.index"
    );
    let channels = channels_of(connection, &statement, deleted).await?;
    renew(connection, schema, &channels, NaiveDate::default()).await
}

/// Looks up the current points of `channels` again, in rows of the log since `oldest`.
pub(super) async fn renew(
    connection: &mut PgConnection,
    schema: &str,
    channels: &[i32],
    oldest: NaiveDate,
) -> Result<(), SeriesError> {
    if channels.is_empty() {
        return Ok(());
    }
    let sql = format!("DELETE FROM {schema}.current WHERE channel = ANY($1)");
    sqlx::query(&sql).bind(channels).execute(&mut *connection).await?;
    let mut found = Vec::new();
    for channel in channels {
        found.extend(current_in_chunks(&mut *connection, schema, *channel, (oldest, &HashSet::new())).await?);
    }
    upsert(connection, schema, found.into_iter()).await
}

/// Looks up channels that are folded and have no current point, as after an upgrade; true when there are no more.
pub(super) async fn fill(pool: &PgPool) -> Result<bool, SeriesError> {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await?;
    begin_fold(&mut transaction).await?;
    let channels: Vec<i32> = sqlx::query_scalar(
        "SELECT l.channel FROM series.latest l
          WHERE NOT EXISTS (SELECT FROM series.current c WHERE c.channel = l.channel) LIMIT $1",
    )
    .bind(AT_ONCE)
    .fetch_all(&mut *transaction)
    .await?;
    renew(&mut transaction, "series", &channels, NaiveDate::default()).await?;
    transaction.commit().await?;
    Ok((channels.len() as i64) < AT_ONCE)
}

/// The current point of `channel` in the chunks of days since `oldest` that is not among `deleted`.
async fn current_in_chunks(
    connection: &mut PgConnection,
    schema: &str,
    channel: i32,
    (oldest, deleted): (NaiveDate, &HashSet<(i64, u32)>),
) -> Result<Option<Ranked>, SeriesError> {
    let Some(newest) = newest_in_chunks(&mut *connection, schema, channel, (oldest, deleted)).await? else {
        return Ok(None);
    };
    let Some(known) = ranked(&mut *connection, vec![newest]).await?.pop() else { return Ok(None) };
    if known.rank == newest.point.time {
        return Ok(Some(known));
    }
    // It was measured by a clock that was ahead. Only values measured since its arrival can rank as newer.
    let sql = format!(
        "SELECT hour, day, points FROM {schema}.chunks WHERE channel = $1 AND max_time >= $2 AND day >= $3"
    );
    let rows: Vec<(i32, NaiveDate, Vec<u8>)> =
        sqlx::query_as(&sql).bind(channel).bind(known.rank).bind(oldest).fetch_all(&mut *connection).await?;
    let mut candidates = Vec::new();
    for (hour, day, bytes) in rows {
        let points = readable(decode_chunk(&bytes), channel, hour).unwrap_or_default();
        let points = points.into_iter().filter(|point| point.time >= known.rank);
        let kept = points.filter(|point| !deleted.contains(&(point.position, point.index)));
        candidates.extend(kept.map(|point| Datapoint { channel, day, point }));
    }
    Ok(ranked(connection, candidates).await?.into_iter().max_by_key(Ranked::order))
}

async fn ranked(connection: &mut PgConnection, points: Vec<Datapoint>) -> Result<Vec<Ranked>, SeriesError> {
    let mut rows: Vec<_> = points.iter().map(|point| (point.point.position, point.day)).collect();
    rows.sort_unstable();
    rows.dedup();
    let mut arrived = HashMap::with_capacity(rows.len());
    for rows in rows.chunks(ROWS) {
        arrived.extend(recorded_times(&mut *connection, rows).await?);
    }
    let arrival = |point: &Datapoint| arrived.get(&point.point.position).map(|time| micros(*time));
    Ok(points.into_iter().map(|point| Ranked::new(point, arrival(&point))).collect())
}
