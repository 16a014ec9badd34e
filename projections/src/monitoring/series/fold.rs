//! Folds rows of the log into chunks and the newest points; the same for live, tail and rebuild.

use std::collections::{HashMap, HashSet};

use chrono::NaiveDate;
use signalbox_datapoint_log::{ChunkPoint, add_day};
use sqlx::PgConnection;

use super::{
    Datapoint, SeriesError,
    batch::{Batch, Changes},
    chunk::{self, ChunkKey, DELETED, MAX_ROW, Names, NewRow, RowHead, channels_of, newest_in_chunks},
    current,
    ranked::current_of,
    rollups::Additions,
};

/// A row is merged with the following ones unless it is this many times as large: an hour keeps few rows, and no
/// point is rewritten more often than the logarithm of their number.
const LARGER: usize = 4;

/// Writes `batch` into the tables in `schema`.
pub(super) async fn apply(
    connection: &mut PgConnection,
    schema: &str,
    mut batch: Batch,
) -> Result<(), SeriesError> {
    let additions = Additions::of(&batch);
    let mut rows: HashMap<ChunkKey, Vec<RowHead>> = HashMap::new();
    for head in chunk::heads(connection, schema, &batch.names()).await? {
        rows.entry(head.key()).or_default().push(head);
    }
    let newest = newest_by_channel(&batch);
    let current = current_of(batch.ranked());
    let deleted: Vec<(i32, i64, u32)> = batch
        .chunks
        .iter()
        .flat_map(|(key, changes)| changes.deleted.iter().map(|place| (key.channel, place.0, place.1)))
        .collect();
    let (mut replaced, mut parts) = (Names::default(), HashMap::new());
    for (key, changes) in &batch.chunks {
        let known = rows.get(key).map(Vec::as_slice).unwrap_or_default();
        let merged = merged(known, changes);
        merged.iter().for_each(|head| replaced.push(*key, head.part));
        let next = known.last().map_or(0, |head| head.part + 1);
        parts.insert(*key, merged.first().map_or(next, |head| head.part));
    }
    let mut damaged = HashSet::new();
    for row in chunk::bytes_of(connection, schema, "points", &replaced).await? {
        match (batch.chunks.get_mut(&row.key()), row.points()) {
            (Some(changes), Some(points)) => changes.points.extend(points),
            (_, None) => drop(damaged.insert((row.key(), row.part))),
            (None, Some(_)) => {}
        }
    }
    if !damaged.is_empty() {
        // They stay as they are until a rebuild, and new points are written after them.
        replaced = replaced.without(&damaged);
        for (key, _) in damaged {
            let next = rows.get(&key).and_then(|rows| rows.last()).map_or(0, |head| head.part + 1);
            parts.insert(key, next);
        }
    }
    let new = batch.chunks.into_iter().flat_map(|(key, changes)| new_rows(key, parts[&key], changes));
    let new: Vec<_> = new.collect();
    chunk::delete(connection, schema, &replaced).await?;
    chunk::insert(connection, schema, &new).await?;
    additions.write(connection, schema).await?;
    upsert_latest(connection, schema, newest.into_values()).await?;
    current::upsert(connection, schema, current.into_values()).await?;
    forget_deleted(connection, schema, &deleted).await?;
    current::forget_deleted(connection, schema, &deleted).await
}

/// The rows that are rewritten together with the new points: the last ones, as far as none is much larger than all
/// that follow it. A deletion rewrites all.
fn merged<'a>(rows: &'a [RowHead], changes: &Changes) -> &'a [RowHead] {
    if !changes.deleted.is_empty() {
        return rows;
    }
    let mut total = changes.points.len();
    let mut from = rows.len();
    for head in rows.iter().rev() {
        let count = head.count as usize;
        if count > LARGER * total || count + total > MAX_ROW {
            break;
        }
        total += count;
        from -= 1;
    }
    &rows[from..]
}

fn new_rows(key: ChunkKey, first_part: i32, changes: Changes) -> Vec<NewRow> {
    let Changes { mut points, deleted } = changes;
    points.retain(|point| !deleted.contains(&(point.position, point.index)));
    points.sort_unstable_by_key(ChunkPoint::order);
    let rows = points.chunks(MAX_ROW).zip(first_part..);
    rows.map(|(points, part)| NewRow { key, part, points: points.to_vec() }).collect()
}

fn newest_by_channel(batch: &Batch) -> HashMap<i32, Datapoint> {
    let mut newest: HashMap<i32, Datapoint> = HashMap::new();
    for point in batch.points() {
        let known = newest.entry(point.channel).or_insert(point);
        if known.point.order() < point.point.order() {
            *known = point;
        }
    }
    newest
}

async fn upsert_latest(
    connection: &mut PgConnection,
    schema: &str,
    points: impl Iterator<Item = Datapoint>,
) -> Result<(), SeriesError> {
    let points: Vec<_> = points.collect();
    if points.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "INSERT INTO {schema}.latest AS l (channel, time, value, day, position, index)
         SELECT * FROM unnest($1::int[], $2::bigint[], $3::float8[], $4::date[], $5::bigint[], $6::int[])
             ON CONFLICT (channel) DO UPDATE SET time = excluded.time, value = excluded.value, day = excluded.day,
                position = excluded.position, index = excluded.index
          WHERE (l.time, l.position, l.index) < (excluded.time, excluded.position, excluded.index)"
    );
    sqlx::query(&sql)
        .bind(points.iter().map(|point| point.channel).collect::<Vec<_>>())
        .bind(points.iter().map(|point| point.point.time).collect::<Vec<_>>())
        .bind(points.iter().map(|point| point.point.value).collect::<Vec<_>>())
        .bind(points.iter().map(|point| point.day).collect::<Vec<_>>())
        .bind(points.iter().map(|point| point.point.position).collect::<Vec<_>>())
        .bind(points.iter().map(|point| point.point.index as i32).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// Where the newest point was deleted, the one before it becomes the newest.
async fn forget_deleted(
    connection: &mut PgConnection,
    schema: &str,
    deleted: &[(i32, i64, u32)],
) -> Result<(), SeriesError> {
    let statement = format!(
        "DELETE FROM {schema}.latest l USING {DELETED}
          WHERE l.channel = d.channel AND l.position = d.position AND l.index = d.index RETURNING l.channel"
    );
    let channels = channels_of(connection, &statement, deleted).await?;
    renew_latest(connection, schema, &channels, NaiveDate::default()).await
}

/// Looks up the newest points of `channels`, which have none now, in rows of the log since `oldest`.
pub(super) async fn renew_latest(
    connection: &mut PgConnection,
    schema: &str,
    channels: &[i32],
    oldest: NaiveDate,
) -> Result<(), SeriesError> {
    let mut found = Vec::new();
    for channel in channels {
        found.extend(newest_in_chunks(connection, schema, *channel, (oldest, &HashSet::new())).await?);
    }
    upsert_latest(connection, schema, found.into_iter()).await?;
    current::renew(connection, schema, channels, oldest).await
}

/// Makes the partitions that points of `days` need.
pub(super) async fn ensure_days(
    connection: &mut PgConnection,
    schema: &str,
    days: impl IntoIterator<Item = NaiveDate>,
) -> Result<(), SeriesError> {
    for day in days {
        add_day(&mut *connection, &format!("{schema}.chunks"), day).await?;
    }
    Ok(())
}
