//! Rows of chunks: how they are named, read and written.

use std::collections::HashSet;

use chrono::NaiveDate;
use signalbox_datapoint_log::{
    ChunkPoint,
    codec::{CodecError, decode_chunk, encode_chunk, encode_samples, samples},
};
use signalbox_from_row::FromRow;
use sqlx::PgConnection;

use super::{Datapoint, SeriesError, incomplete::note_damaged};

/// Points of a row at most.
pub(super) const MAX_ROW: usize = 65_536;
/// Number of samples in the row itself, for rows of up to so many points.
const BRIEF: (usize, usize) = (8, 65);
/// Samples beside the row.
const DIGEST: (usize, usize) = (64, 1024);

/// Points of one channel, one hour, and one day of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct ChunkKey {
    pub(super) channel: i32,
    pub(super) hour: i32,
    pub(super) day: NaiveDate,
}

/// A row without its points.
#[derive(Debug, Clone, Copy, FromRow)]
pub(super) struct RowHead {
    pub(super) channel: i32,
    pub(super) hour: i32,
    pub(super) day: NaiveDate,
    pub(super) part: i32,
    pub(super) count: i32,
}

impl RowHead {
    pub(super) fn key(&self) -> ChunkKey {
        ChunkKey { channel: self.channel, hour: self.hour, day: self.day }
    }
}

/// Bytes of a row: points or samples.
#[derive(Debug, FromRow)]
pub(super) struct RowBytes {
    pub(super) channel: i32,
    pub(super) hour: i32,
    pub(super) day: NaiveDate,
    pub(super) part: i32,
    pub(super) bytes: Vec<u8>,
}

impl RowBytes {
    pub(super) fn key(&self) -> ChunkKey {
        ChunkKey { channel: self.channel, hour: self.hour, day: self.day }
    }

    /// The points, if the bytes are points; `None` of a damaged row, which is noted.
    pub(super) fn points(&self) -> Option<Vec<ChunkPoint>> {
        let Self { channel, hour, .. } = self;
        readable(decode_chunk(&self.bytes), *channel, *hour)
    }
}

/// The decoded value of a row of chunks. A damaged one is left out, and the answer counts it, see [`note_damaged`].
pub(super) fn readable<T>(decoded: Result<T, CodecError>, channel: i32, hour: i32) -> Option<T> {
    decoded.inspect_err(|error| report_damaged(error, channel, hour)).ok()
}

/// Reports a damaged row of chunks, and counts it for the present answer.
pub(super) fn report_damaged(error: &CodecError, channel: i32, hour: i32) {
    tracing::error!(%error, channel, hour, "a chunk of datapoints is damaged: rebuild the read model `datapoints`");
    note_damaged();
}

/// A row to be written.
pub(super) struct NewRow {
    pub(super) key: ChunkKey,
    pub(super) part: i32,
    /// By time; not empty.
    pub(super) points: Vec<ChunkPoint>,
}

/// Which rows, as columns for a statement.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) channels: Vec<i32>,
    pub(super) hours: Vec<i32>,
    pub(super) days: Vec<NaiveDate>,
    pub(super) parts: Vec<i32>,
}

impl Names {
    pub(super) fn push(&mut self, key: ChunkKey, part: i32) {
        self.channels.push(key.channel);
        self.hours.push(key.hour);
        self.days.push(key.day);
        self.parts.push(part);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }

    /// These but for some.
    pub(super) fn without(self, excluded: &HashSet<(ChunkKey, i32)>) -> Self {
        let mut rest = Self::default();
        let places = self.channels.into_iter().zip(self.hours).zip(self.days).zip(self.parts);
        for (((channel, hour), day), part) in places {
            let key = ChunkKey { channel, hour, day };
            if !excluded.contains(&(key, part)) {
                rest.push(key, part);
            }
        }
        rest
    }
}

/// The heads of all rows of `chunks`, by part.
pub(super) async fn heads(
    connection: &mut PgConnection,
    schema: &str,
    chunks: &Names,
) -> Result<Vec<RowHead>, SeriesError> {
    let sql = format!(
        "SELECT c.channel, c.hour, c.day, c.part, c.count FROM unnest($1, $2, $3) AS w (channel, hour, day)
           JOIN {schema}.chunks c ON c.channel = w.channel AND c.hour = w.hour AND c.day = w.day ORDER BY c.part"
    );
    let query = sqlx::query_as(&sql).bind(&chunks.channels).bind(&chunks.hours).bind(&chunks.days);
    Ok(query.fetch_all(connection).await?)
}

/// `column` (`points` or `digest`) of the rows `names`.
pub(super) async fn bytes_of(
    connection: &mut PgConnection,
    schema: &str,
    column: &str,
    names: &Names,
) -> Result<Vec<RowBytes>, SeriesError> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT c.channel, c.hour, c.day, c.part, c.{column} AS bytes
           FROM unnest($1, $2, $3, $4) AS w (channel, hour, day, part)
           JOIN {schema}.chunks c ON c.channel = w.channel AND c.hour = w.hour AND c.day = w.day AND c.part = w.part"
    );
    let query = sqlx::query_as(&sql).bind(&names.channels).bind(&names.hours).bind(&names.days);
    Ok(query.bind(&names.parts).fetch_all(connection).await?)
}

pub(super) async fn delete(
    connection: &mut PgConnection,
    schema: &str,
    names: &Names,
) -> Result<(), SeriesError> {
    if names.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "DELETE FROM {schema}.chunks c USING unnest($1, $2, $3, $4) AS w (channel, hour, day, part)
          WHERE c.channel = w.channel AND c.hour = w.hour AND c.day = w.day AND c.part = w.part"
    );
    let query = sqlx::query(&sql).bind(&names.channels).bind(&names.hours).bind(&names.days);
    query.bind(&names.parts).execute(connection).await?;
    Ok(())
}

pub(super) async fn insert(
    connection: &mut PgConnection,
    schema: &str,
    rows: &[NewRow],
) -> Result<(), SeriesError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut names = Names::default();
    rows.iter().for_each(|row| names.push(row.key, row.part));
    let sampled = |(parts, least): (usize, usize)| -> Vec<Option<Vec<u8>>> {
        let of =
            |row: &NewRow| (row.points.len() >= least).then(|| encode_samples(&samples(&row.points, parts)));
        rows.iter().map(of).collect()
    };
    let time = |of: fn(&[ChunkPoint]) -> Option<&ChunkPoint>| -> Vec<i64> {
        rows.iter().map(|row| of(&row.points).map_or(0, |point| point.time)).collect()
    };
    let sql = format!(
        "INSERT INTO {schema}.chunks (channel, hour, day, part, count, min_time, max_time, brief, digest, points)
         SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
    );
    sqlx::query(&sql)
        .bind(&names.channels)
        .bind(&names.hours)
        .bind(&names.days)
        .bind(&names.parts)
        .bind(rows.iter().map(|row| row.points.len() as i32).collect::<Vec<_>>())
        .bind(time(<[_]>::first))
        .bind(time(<[_]>::last))
        .bind(sampled(BRIEF))
        .bind(sampled(DIGEST))
        .bind(rows.iter().map(|row| encode_chunk(&row.points)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

/// The newest point of `channel` in the chunks of days since `oldest` that is not among `deleted`.
pub(super) async fn newest_in_chunks(
    connection: &mut PgConnection,
    schema: &str,
    channel: i32,
    (oldest, deleted): (NaiveDate, &HashSet<(i64, u32)>),
) -> Result<Option<Datapoint>, SeriesError> {
    let mut before = i32::MAX;
    loop {
        let sql = format!(
            "SELECT hour, day, points FROM {schema}.chunks WHERE channel = $1 AND day >= $3
                AND hour = (SELECT max(hour) FROM {schema}.chunks WHERE channel = $1 AND hour < $2 AND day >= $3)"
        );
        let rows: Vec<(i32, NaiveDate, Vec<u8>)> =
            sqlx::query_as(&sql).bind(channel).bind(before).bind(oldest).fetch_all(&mut *connection).await?;
        let Some((hour, ..)) = rows.first() else { return Ok(None) };
        before = *hour;
        let mut newest: Option<Datapoint> = None;
        for (hour, day, bytes) in rows {
            let points = readable(decode_chunk(&bytes), channel, hour).unwrap_or_default().into_iter();
            let kept = points.filter(|point| !deleted.contains(&(point.position, point.index)));
            for point in kept.map(|point| Datapoint { channel, day, point }) {
                if newest.is_none_or(|known| known.point.order() < point.point.order()) {
                    newest = Some(point);
                }
            }
        }
        if newest.is_some() {
            return Ok(newest);
        }
    }
}

/// The points that [`channels_of`] passes to a statement.
pub(super) const DELETED: &str = "unnest($1::int[], $2::bigint[], $3::int[]) AS d (channel, position, index)";

/// The channels that `statement` returns for the points `deleted`, which it calls [`DELETED`].
pub(super) async fn channels_of(
    connection: &mut PgConnection,
    statement: &str,
    deleted: &[(i32, i64, u32)],
) -> Result<Vec<i32>, SeriesError> {
    if deleted.is_empty() {
        return Ok(Vec::new());
    }
    let channels = sqlx::query_scalar(statement)
        .bind(deleted.iter().map(|place| place.0).collect::<Vec<_>>())
        .bind(deleted.iter().map(|place| place.1).collect::<Vec<_>>())
        .bind(deleted.iter().map(|place| place.2 as i32).collect::<Vec<_>>())
        .fetch_all(connection)
        .await?;
    Ok(channels)
}
