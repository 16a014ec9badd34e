use signalbox_boxed::boxed;
use std::collections::HashMap;

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
use signalbox_clock::Clock;
use signalbox_database::server_time;
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::{
    Origin, Place, Point,
    append::is_without_partition,
    codec::{CodecError, decode_block},
    partitions::add_day,
};

/// Row of points.
const POINTS: i16 = 1;

/// A row as it was committed, for readers that follow the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Its day.
    pub day: NaiveDate,
    /// Its position.
    pub position: i64,
    /// When it was appended.
    pub recorded_at: DateTime<Utc>,
    /// Its blocks, one after the other.
    pub payload: Vec<u8>,
}

/// A row of the log.
#[derive(Debug, Clone, FromRow)]
pub struct LogRow {
    /// Gapless place in the log, from 1.
    pub position: i64,
    /// Its day, which names the partition.
    pub day: NaiveDate,
    /// When it was appended.
    pub recorded_at: DateTime<Utc>,
    kind: i16,
    /// How many points it holds.
    pub points: i32,
    /// How many points it and all rows before it hold.
    pub total: i64,
    payload: Vec<u8>,
}

/// The content of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    /// Points arrived, in the order of their index; those that are cleared hold their places.
    Points(Vec<Point>),
    /// A point was deleted.
    Deleted(Tombstone),
}

/// The deletion of a point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Day of the point's row.
    pub day: NaiveDate,
    /// Position of the point's row.
    pub position: i64,
    /// Place within the row.
    pub index: u32,
    /// The channel's integer.
    pub channel: i32,
    /// When it was measured, in microseconds since 1970.
    pub time: i64,
    /// The actor that deleted it, as in the event log.
    pub actor: String,
}

/// A row that this program cannot read.
#[derive(Debug, thiserror::Error)]
#[error("row {position} of the datapoint log cannot be read: {reason}")]
pub struct UnreadableRow {
    /// Its position.
    pub position: i64,
    /// Why it cannot be decoded.
    pub reason: String,
}

/// The end of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct Head {
    /// Position of the newest row; 0 if the log is empty.
    pub position: i64,
    /// Points ever appended.
    pub points: i64,
}

impl LogRow {
    /// Decodes the row.
    ///
    /// # Errors
    /// [`UnreadableRow`].
    pub fn entry(&self) -> Result<Entry, UnreadableRow> {
        let unreadable = |reason: String| UnreadableRow { position: self.position, reason };
        if self.kind == POINTS {
            let points = decode_payload(&self.payload).map_err(|error| unreadable(error.to_string()))?;
            // A payload cut between two blocks decodes, but is incomplete.
            if points.len() as i64 != i64::from(self.points) {
                return Err(unreadable(format!("it holds {} of {} datapoints", points.len(), self.points)));
            }
            Ok(Entry::Points(points))
        } else {
            let read = serde_json::from_slice(&self.payload);
            read.map(Entry::Deleted).map_err(|error| unreadable(error.to_string()))
        }
    }

    /// The points of each of the row's batches, and who sent it, in order; none of a deletion, and none that is cleared.
    ///
    /// # Errors
    /// [`UnreadableRow`].
    pub fn batches(&self) -> Result<Vec<(Origin, Vec<Point>)>, UnreadableRow> {
        let mut batches = Vec::new();
        let mut rest = if self.kind == POINTS { self.payload.as_slice() } else { &[] };
        while !rest.is_empty() {
            let batch = decode_block(&mut rest)
                .map_err(|error| UnreadableRow { position: self.position, reason: error.to_string() })?;
            let (origin, mut points) = batch;
            points.retain(|point| !point.is_cleared());
            batches.push((origin, points));
        }
        Ok(batches)
    }

    /// The deletion that it is, if it holds no points.
    ///
    /// # Errors
    /// [`UnreadableRow`].
    pub fn deletion(&self) -> Result<Option<Tombstone>, UnreadableRow> {
        match self.kind {
            POINTS => Ok(None),
            _ => self.entry().map(|entry| match entry {
                Entry::Deleted(deletion) => Some(deletion),
                Entry::Points(_) => None,
            }),
        }
    }

    /// The point at `index`, and who sent it.
    ///
    /// # Errors
    /// [`UnreadableRow`].
    pub fn point(&self, index: u32) -> Result<Option<(Origin, Point)>, UnreadableRow> {
        if self.kind != POINTS {
            return Ok(None);
        }
        let (mut rest, mut index) = (self.payload.as_slice(), index as usize);
        while !rest.is_empty() {
            let (origin, points) = decode_block(&mut rest)
                .map_err(|error| UnreadableRow { position: self.position, reason: error.to_string() })?;
            match points.get(index) {
                Some(point) => return Ok(Some((origin, *point)).filter(|_| !point.is_cleared())),
                None => index -= points.len(),
            }
        }
        Ok(None)
    }
}

/// The points of all blocks of `payload`.
///
/// # Errors
/// [`CodecError`].
pub fn decode_payload(mut payload: &[u8]) -> Result<Vec<Point>, CodecError> {
    let mut points = Vec::new();
    while !payload.is_empty() {
        points.append(&mut decode_block(&mut payload)?.1);
    }
    Ok(points)
}

/// Checks that `block` is one block of `count` finite points: an unreadable block must not enter the log.
///
/// # Errors
/// [`CodecError`].
pub fn check_block(mut block: &[u8], count: usize) -> Result<(), CodecError> {
    let (_, points) = decode_block(&mut block)?;
    let is_sound = block.is_empty()
        && points.len() == count
        && count > 0
        && points.iter().all(|point| point.value.is_finite());
    if is_sound { Ok(()) } else { Err(CodecError::Malformed) }
}

/// At most `limit` rows after `position`, in order. `day` is the day of the row at `position`, or an earlier one.
///
/// # Errors
/// The database's error.
pub async fn read_after(
    executor: impl PgExecutor<'_>,
    position: i64,
    day: NaiveDate,
    limit: i64,
) -> Result<Vec<LogRow>, sqlx::Error> {
    // Clocks of writers may differ a little around midnight.
    sqlx::query_as(
        "SELECT position, day, recorded_at, kind, points, total, payload FROM datapoint_log
          WHERE position > $1 AND day >= $2::date - 1 ORDER BY position LIMIT $3",
    )
    .bind(position)
    .bind(day)
    .bind(limit)
    .fetch_all(executor)
    .await
}

/// Rows after `position`, in order, until they hold `points` points or are `limit` rows; at least the first one. `total`
/// is that of the row at `position`.
///
/// Only partitions from the day before `day` on are read, unless rows are missing there: a writer whose clock was ahead for
/// a while has left a day that the next rows precede. Rows that retention has dropped are missing everywhere.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_points_after(
    connection: &mut PgConnection,
    (position, day, total): (i64, NaiveDate, i64),
    points: i64,
    limit: i64,
) -> Result<Vec<LogRow>, sqlx::Error> {
    let rows = points_after(connection, (position, day, total), points, limit).await?;
    let is_gapless = rows.iter().zip(position + 1..).all(|(row, expected)| row.position == expected);
    if is_gapless && (!rows.is_empty() || head(&mut *connection).await?.position <= position) {
        return Ok(rows);
    }
    points_after(connection, (position, NaiveDate::default(), total), points, limit).await
}

async fn points_after(
    connection: &mut PgConnection,
    (position, day, total): (i64, NaiveDate, i64),
    points: i64,
    limit: i64,
) -> Result<Vec<LogRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT position, day, recorded_at, kind, points, total, payload FROM datapoint_log
          WHERE position > $1 AND day >= $2::date - 1 AND total - points < $3 ORDER BY position LIMIT $4",
    )
    .bind(position)
    .bind(day)
    .bind(total + points)
    .bind(limit)
    .fetch_all(connection)
    .await
}

/// The row that holds the point at `place`, unless it, or that point, was deleted.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_row(pool: &PgPool, place: Place) -> Result<Option<LogRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT position, day, recorded_at, kind, points, total, payload FROM datapoint_log
          WHERE position = $1 AND day = $2
            AND NOT EXISTS (SELECT FROM datapoint_tombstones WHERE position = $1 AND day = $2 AND index = $3)",
    )
    .bind(place.position)
    .bind(place.day)
    .bind(place.index as i32)
    .fetch_optional(pool)
    .await
}

/// The rows at `places`, as position and day; those that are gone are left out.
///
/// # Errors
/// The database's error.
pub async fn read_rows(
    executor: impl PgExecutor<'_>,
    places: &[(i64, NaiveDate)],
) -> Result<Vec<LogRow>, sqlx::Error> {
    let (positions, days): (Vec<_>, Vec<_>) = places.iter().copied().unzip();
    sqlx::query_as(
        "SELECT position, day, recorded_at, kind, points, total, payload FROM datapoint_log
          WHERE day = ANY($2) AND position = ANY($1)",
    )
    .bind(positions)
    .bind(days)
    .fetch_all(executor)
    .await
}

/// When rows were appended, by their positions; each is given with its day. Rows that retention has dropped are left out.
///
/// # Errors
/// The database's error.
pub async fn recorded_times(
    executor: impl PgExecutor<'_>,
    rows: &[(i64, NaiveDate)],
) -> Result<HashMap<i64, DateTime<Utc>>, sqlx::Error> {
    let (mut positions, mut days): (Vec<_>, Vec<_>) = rows.iter().copied().unzip();
    positions.dedup();
    days.dedup();
    let times: Vec<_> = sqlx::query_as(
        "SELECT position, recorded_at FROM datapoint_log WHERE day = ANY($2) AND position = ANY($1)",
    )
    .bind(positions)
    .bind(days)
    .fetch_all(executor)
    .await?;
    Ok(times.into_iter().collect())
}

/// The end of the log.
///
/// # Errors
/// The database's error.
pub async fn head(executor: impl PgExecutor<'_>) -> Result<Head, sqlx::Error> {
    // Newest first: the versions before it may be many, see ADR 30.
    sqlx::query_as(
        "SELECT position, points FROM log_head WHERE log = 'datapoints' ORDER BY position DESC LIMIT 1",
    )
    .fetch_one(executor)
    .await
}

/// Appends `tombstone`; false when the point was deleted before.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn append_tombstone(
    pool: &PgPool,
    tombstone: &Tombstone,
    clock: &Clock,
) -> Result<Option<i64>, sqlx::Error> {
    let description = serde_json::to_vec(tombstone).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let append = || async {
        sqlx::query_scalar("SELECT append_tombstone($1, $2, $3, $4, coalesce($5, clock_timestamp()))")
            .bind(tombstone.day)
            .bind(tombstone.position)
            .bind(tombstone.index as i32)
            .bind(&description)
            .bind(clock.manual_time())
            .fetch_one(pool)
            .await
    };
    match append().await {
        Err(error) if is_without_partition(&error) => {
            add_day(pool, "datapoint_tombstones", tombstone.day).await?;
            let today = server_time(pool, clock).await?.date_naive();
            add_day(pool, "datapoint_log", today).await?;
            append().await
        }
        result => result,
    }
}
