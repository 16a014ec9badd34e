//! All points of some channels, and how many they are, for readers that evaluate them by themselves.

use std::{
    collections::{BTreeMap, HashSet},
    panic::resume_unwind,
};

use chrono::NaiveDate;
use signalbox_boxed::boxed;
use signalbox_datapoint_log::{
    ChunkPoint,
    codec::{CodecError, decode_chunk},
};
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use tokio::task::spawn_blocking;

use super::{
    SeriesError,
    chunk::report_damaged,
    first_day_since, hour_of,
    snapshot::{Snapshot, Tail},
};

#[derive(FromRow)]
struct Row {
    channel: i32,
    hour: i32,
    points: Vec<u8>,
}

/// The points of `channels` that were measured from `from` on and before `to`, in microseconds: by channel, in the order of time,
/// those of one instant in the order of their arrival. They are all in memory: see [`count_points`].
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn all_points(
    pool: &PgPool,
    channels: &[i32],
    (from, to): (i64, i64),
) -> Result<BTreeMap<i32, Vec<ChunkPoint>>, SeriesError> {
    let mut snapshot = Snapshot::open(pool).await?;
    let tail = snapshot.tail(Some(from)).await?;
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT channel, hour, points FROM series.chunks
          WHERE channel = ANY($1) AND hour BETWEEN $2 AND $3 AND day >= $4 AND max_time >= $5 AND min_time < $6",
    )
    .bind(channels)
    .bind(hour_of(from))
    .bind(hour_of(to - 1))
    .bind(first_day_since(from))
    .bind(from)
    .bind(to)
    .fetch_all(snapshot.connection())
    .await?;
    snapshot.close();
    let asked: HashSet<i32> = channels.iter().copied().collect();
    // An hour of many points takes so long that nothing else would be done on this thread.
    let decoding = spawn_blocking(move || decoded(rows, tail, &asked, (from, to)));
    // It is never aborted: an error is its panic.
    let (found, damaged) = decoding.await.unwrap_or_else(|error| resume_unwind(error.into_panic()));
    for (channel, hour, error) in damaged {
        report_damaged(&error, channel, hour);
    }
    Ok(found)
}

type Damaged = (i32, i32, CodecError);

/// The points of `rows` and `tail`, and what is damaged of the rows.
fn decoded(
    rows: Vec<Row>,
    tail: Tail,
    asked: &HashSet<i32>,
    (from, to): (i64, i64),
) -> (BTreeMap<i32, Vec<ChunkPoint>>, Vec<Damaged>) {
    let (mut found, mut damaged) = (BTreeMap::<i32, Vec<ChunkPoint>>::new(), Vec::new());
    let is_meant = |point: &ChunkPoint| (from..to).contains(&point.time);
    for row in rows {
        match decode_chunk(&row.points) {
            Ok(points) => {
                let points = points.into_iter().filter(|point| is_meant(point) && !tail.is_deleted(point));
                found.entry(row.channel).or_default().extend(points);
            }
            Err(error) => damaged.push((row.channel, row.hour, error)),
        }
    }
    for point in tail.points {
        if asked.contains(&point.channel) && is_meant(&point.point) {
            found.entry(point.channel).or_default().push(point.point);
        }
    }
    for points in found.values_mut() {
        points.sort_unstable_by_key(ChunkPoint::order);
    }
    (found, damaged)
}

/// How many folded points each of `channels` has in the hours from `from` to `to`, in microseconds, where it has any. Hours count
/// whole, points that are not folded yet do not.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn count_points(
    pool: &PgPool,
    channels: &[i32],
    span: (i64, i64),
) -> Result<BTreeMap<i32, i64>, SeriesError> {
    counted(pool, "channel", channels, span).await
}

/// The same, of all `channels` together, by hour since 1970.
///
/// # Errors
/// [`SeriesError`].
#[boxed]
pub async fn count_points_by_hour(
    pool: &PgPool,
    channels: &[i32],
    span: (i64, i64),
) -> Result<BTreeMap<i32, i64>, SeriesError> {
    counted(pool, "hour", channels, span).await
}

async fn counted(
    pool: &PgPool,
    column: &str,
    channels: &[i32],
    (from, to): (i64, i64),
) -> Result<BTreeMap<i32, i64>, SeriesError> {
    let sql = format!(
        "SELECT {column}, sum(count)::bigint FROM series.chunks
          WHERE channel = ANY($1) AND hour BETWEEN $2 AND $3 AND day >= $4 GROUP BY {column}"
    );
    let day: NaiveDate = first_day_since(from);
    let query = sqlx::query_as(&sql).bind(channels).bind(hour_of(from)).bind(hour_of(to - 1)).bind(day);
    let counts: Vec<(i32, i64)> = query.fetch_all(pool).await?;
    Ok(counts.into_iter().collect())
}
