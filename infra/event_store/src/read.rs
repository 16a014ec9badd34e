use signalbox_boxed::boxed;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use signalbox_database::is_refusal;
use signalbox_domain::kernel::parse_time;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::{
    RecordedEvent,
    slice::{EventKey, LogSlice, UnreadableEvent},
};

/// The columns of a [`RecordedEvent`] except for the large ones, `payload` and `metadata`, which follow.
pub(crate) const HEADER: &str =
    "SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version, recorded_at";

const NO_METADATA: &str = "'null'::jsonb";

/// At most `limit` events after `position`, in order. Positions are gapless and in commit order, so the first one is
/// `position + 1`, or the result is empty.
///
/// # Errors
/// The database's error.
pub async fn read_after<J: DeserializeOwned + Send + Unpin + 'static>(
    connection: &mut PgConnection,
    position: i64,
    limit: i64,
) -> Result<LogSlice<J>, sqlx::Error> {
    read_slice(connection, position, limit, "payload", "metadata", None).await
}

/// All events after `position`, at most `limit`, in order; those that are not of `aggregates` without their payload, and
/// all without their metadata: for readers that pass over the others and yet have to know that none is missing.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_all_for(
    connection: &mut PgConnection,
    position: i64,
    limit: i64,
    aggregates: &[&str],
) -> Result<LogSlice, sqlx::Error> {
    const PAYLOAD: &str = "CASE WHEN aggregate_type = ANY($3) THEN payload ELSE 'null' END";
    read_slice(connection, position, limit, PAYLOAD, NO_METADATA, Some(aggregates)).await
}

/// All events after `position`, at most `limit`, in order; those that are not of `event_types` without their payload, and all
/// without their metadata: for readers that want few kinds of events and yet have to know that none is missing.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_all_with(
    connection: &mut PgConnection,
    position: i64,
    limit: i64,
    event_types: &[&str],
) -> Result<LogSlice, sqlx::Error> {
    const PAYLOAD: &str = "CASE WHEN event_type = ANY($3) THEN payload ELSE 'null' END";
    read_slice(connection, position, limit, PAYLOAD, NO_METADATA, Some(event_types)).await
}

/// Reads fewer events when the server refuses to return one of them, and that one without its documents.
async fn read_slice<J: DeserializeOwned + Send + Unpin + 'static>(
    connection: &mut PgConnection,
    position: i64,
    limit: i64,
    payload: &str,
    metadata: &str,
    event_types: Option<&[&str]>,
) -> Result<LogSlice<J>, sqlx::Error> {
    let sql = format!(
        "{HEADER}, {payload} AS payload, {metadata} AS metadata
           FROM events WHERE position > $1 ORDER BY position LIMIT $2"
    );
    let mut count = limit;
    loop {
        let read = sqlx::query(&sql).bind(position).bind(count);
        let read = if let Some(event_types) = event_types { read.bind(event_types) } else { read };
        match read.fetch_all(&mut *connection).await {
            Ok(rows) => return Ok(LogSlice::of(&rows, rows.len() as i64 == count)),
            Err(error) if is_refusal(&error) && count > 1 => count = (count / 2).max(1),
            Err(error) if is_refusal(&error) => {
                return read_header(connection, position, &error.to_string()).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// The next event, whose documents the server refuses to return.
async fn read_header<J>(
    connection: &mut PgConnection,
    position: i64,
    error: &str,
) -> Result<LogSlice<J>, sqlx::Error> {
    let rows = sqlx::query(&format!("{HEADER} FROM events WHERE position > $1 ORDER BY position LIMIT 1"))
        .bind(position)
        .fetch_all(connection)
        .await?;
    let unreadable = rows.iter().map(|row| UnreadableEvent::of(row, error)).collect::<Vec<_>>();
    Ok(LogSlice { events: Vec::new(), unreadable, is_full: true })
}

/// The traces of the events of `aggregates` after position `after` up to `last`, each once.
///
/// # Errors
/// The database's error.
pub async fn traces_between(
    executor: impl PgExecutor<'_>,
    (after, last): (i64, i64),
    aggregates: &[&str],
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT DISTINCT metadata->>'traceparent' FROM events
          WHERE position > $1 AND position <= $2 AND aggregate_type = ANY($3) AND metadata ? 'traceparent'",
    )
    .bind(after)
    .bind(last)
    .bind(aggregates)
    .fetch_all(executor)
    .await
}

/// The events of `aggregates` after `position` up to `last`, in order, without their metadata: for readers that fold the whole
/// log again, and want nothing else of it.
///
/// # Errors
/// The database's error.
pub async fn read_aggregates(
    executor: impl PgExecutor<'_>,
    position: i64,
    last: i64,
    aggregates: &[&str],
) -> Result<LogSlice, sqlx::Error> {
    let rows = sqlx::query(&format!(
        "{HEADER}, payload, 'null'::jsonb AS metadata
           FROM events WHERE position > $1 AND position <= $2 AND aggregate_type = ANY($3) ORDER BY position"
    ))
    .bind(position)
    .bind(last)
    .bind(aggregates)
    .fetch_all(executor)
    .await?;
    Ok(LogSlice::of(&rows, false))
}

/// First position after `position`, up to `last`, that has no event.
///
/// # Errors
/// The database's error.
pub async fn first_gap(
    executor: impl PgExecutor<'_>,
    position: i64,
    last: i64,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT expected FROM generate_series($1::bigint + 1, $2::bigint) AS expected
          WHERE NOT EXISTS (SELECT FROM events WHERE events.position = expected) ORDER BY 1 LIMIT 1",
    )
    .bind(position)
    .bind(last)
    .fetch_optional(executor)
    .await
}

/// How many events there are after `position` up to `last`: as many as there are positions.
///
/// # Errors
/// The database's error.
pub async fn count_between(
    executor: impl PgExecutor<'_>,
    position: i64,
    last: i64,
) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT count(*) FROM events WHERE position > $1 AND position <= $2")
        .bind(position)
        .bind(last)
        .fetch_one(executor)
        .await
}

/// All events of one aggregate, oldest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_stream(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{HEADER}, payload, metadata FROM events WHERE aggregate_type = $1 AND aggregate_id = $2 ORDER BY sequence"
    ))
    .bind(aggregate_type)
    .bind(id.to_string())
    .fetch_all(pool)
    .await
}

/// The events at `positions`, which are in ascending order, without their metadata.
///
/// # Errors
/// The database's error.
pub async fn read_at(pool: &PgPool, positions: &[i64]) -> Result<LogSlice, sqlx::Error> {
    let read = sqlx::query(&format!(
        "{HEADER}, payload, {NO_METADATA} AS metadata FROM events WHERE position = ANY($1) ORDER BY position"
    ))
    .bind(positions)
    .fetch_all(pool)
    .await;
    match read {
        Ok(rows) => Ok(LogSlice::of(&rows, false)),
        Err(error) if is_refusal(&error) => read_each(pool, positions).await,
        Err(error) => Err(error),
    }
}

/// Reads the events at `positions` one by one, as the server refuses to return one of them.
async fn read_each(pool: &PgPool, positions: &[i64]) -> Result<LogSlice, sqlx::Error> {
    let mut connection = pool.acquire().await?;
    let mut all = LogSlice { events: Vec::new(), unreadable: Vec::new(), is_full: false };
    for position in positions {
        let next = read_slice(&mut connection, position - 1, 1, "payload", NO_METADATA, None).await?;
        all.events.extend(next.events.into_iter().filter(|event| event.position == *position));
        all.unreadable.extend(next.unreadable.into_iter().filter(|event| event.key.position == *position));
    }
    Ok(all)
}

/// Those events of several aggregates of a type whose words are `event_types`, each stream oldest first, without their metadata.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_streams(
    pool: &PgPool,
    aggregate_type: &str,
    ids: &[Uuid],
    event_types: &[&str],
) -> Result<LogSlice, sqlx::Error> {
    let ids: Vec<_> = ids.iter().map(Uuid::to_string).collect();
    // Asked for one stream after the other: of all of them together, PostgreSQL may think that reading the whole log is quicker.
    let rows = sqlx::query(
        "SELECT stream.* FROM unnest($2) AS requested (id) CROSS JOIN LATERAL (
             SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version, recorded_at, payload,
                    'null'::jsonb AS metadata
               FROM events WHERE aggregate_type = $1 AND aggregate_id = requested.id AND event_type = ANY($3)
              ORDER BY sequence) AS stream",
    )
    .bind(aggregate_type)
    .bind(ids)
    .bind(event_types)
    .fetch_all(pool)
    .await?;
    Ok(LogSlice::of(&rows, false))
}

/// A moment of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// The newest.
    Now,
    /// After the event at this position.
    Position(i64),
    /// With all that was recorded until then.
    Time(DateTime<Utc>),
}

/// A text that names no moment.
#[derive(Debug, thiserror::Error)]
#[error("at must be a position or a time such as 2026-01-31T12:00:00Z")]
pub struct InvalidMoment;

impl FromStr for Moment {
    type Err = InvalidMoment;

    fn from_str(text: &str) -> Result<Self, InvalidMoment> {
        let text = text.trim();
        let position = text.parse().ok().map(Self::Position);
        position.or_else(|| parse_time(text).map(Self::Time)).ok_or(InvalidMoment)
    }
}

/// At most `limit` events of one aggregate after version `version`, oldest first, as far as there were at `moment`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_stream_after(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
    version: i64,
    moment: Moment,
    limit: i64,
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    let (position, time) = match moment {
        Moment::Now => (None, None),
        Moment::Position(position) => (Some(position), None),
        Moment::Time(time) => (None, Some(time)),
    };
    sqlx::query_as(&format!(
        "{HEADER}, payload, metadata FROM events
          WHERE aggregate_type = $1 AND aggregate_id = $2 AND sequence > $3
            AND ($4::bigint IS NULL OR position <= $4) AND ($5::timestamptz IS NULL OR recorded_at <= $5)
          ORDER BY sequence LIMIT $6"
    ))
    .bind(aggregate_type)
    .bind(id.to_string())
    .bind(version)
    .bind(position)
    .bind(time)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// At most `limit` events of one stream from `sequence` on, in order, up to position `last`, without their metadata. The id is
/// taken as it is stored.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_stream_from(
    connection: &mut PgConnection,
    (aggregate_type, id): (&str, &str),
    sequence: i64,
    last: i64,
    limit: i64,
) -> Result<LogSlice, sqlx::Error> {
    let rows = sqlx::query(&format!(
        "{HEADER}, payload, 'null'::jsonb AS metadata FROM events
          WHERE aggregate_type = $1 AND aggregate_id = $2 AND sequence >= $3 AND position <= $4
          ORDER BY sequence LIMIT $5"
    ))
    .bind(aggregate_type)
    .bind(id)
    .bind(sequence)
    .bind(last)
    .bind(limit)
    .fetch_all(connection)
    .await?;
    Ok(LogSlice::of(&rows, rows.len() as i64 == limit))
}

/// The events of one stream from `sequence` on up to position `last` whose words are `event_types`, without their documents.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn stream_keys(
    connection: &mut PgConnection,
    (aggregate_type, id): (&str, &str),
    sequence: i64,
    last: i64,
    event_types: &[&str],
) -> Result<Vec<EventKey>, sqlx::Error> {
    let rows = sqlx::query(&format!(
        "{HEADER} FROM events WHERE aggregate_type = $1 AND aggregate_id = $2 AND sequence >= $3 AND position <= $4
            AND event_type = ANY($5) ORDER BY sequence"
    ))
    .bind(aggregate_type)
    .bind(id)
    .bind(sequence)
    .bind(last)
    .bind(event_types)
    .fetch_all(connection)
    .await?;
    Ok(rows.iter().map(EventKey::of).collect())
}

/// Position of the newest event of one aggregate; `None` when it has none.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn stream_position(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT position FROM events WHERE aggregate_type = $1 AND aggregate_id = $2 ORDER BY sequence DESC LIMIT 1",
    )
    .bind(aggregate_type)
    .bind(id.to_string())
    .fetch_optional(pool)
    .await
}

/// The version of one aggregate; 0 when it has no events.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn stream_version(pool: &PgPool, aggregate_type: &str, id: Uuid) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT coalesce(max(sequence), 0) FROM events WHERE aggregate_type = $1 AND aggregate_id = $2",
    )
    .bind(aggregate_type)
    .bind(id.to_string())
    .fetch_one(pool)
    .await
}

/// Whether an event of one aggregate holds the key `other` in its payload.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn mentions(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
    other: Uuid,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM events
          WHERE aggregate_type = $1 AND aggregate_id = $2 AND strpos(payload::text, $3) > 0)",
    )
    .bind(aggregate_type)
    .bind(id.to_string())
    .bind(other.to_string())
    .fetch_one(pool)
    .await
}

/// Position of the last event recorded before `time`; 0 if there is none. Positions follow time, except when the
/// clock was set back.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn position_before(pool: &PgPool, time: DateTime<Utc>) -> Result<i64, sqlx::Error> {
    let (mut before, mut end) = (0, head_position(pool).await? + 1);
    while end - before > 1 {
        let middle = before + (end - before) / 2;
        let recorded_at: DateTime<Utc> =
            sqlx::query_scalar("SELECT recorded_at FROM events WHERE position = $1")
                .bind(middle)
                .fetch_one(pool)
                .await?;
        if recorded_at < time { before = middle } else { end = middle }
    }
    Ok(before)
}

/// Position of the newest event; 0 when the log is empty.
///
/// # Errors
/// The database's error.
pub async fn head_position(executor: impl PgExecutor<'_>) -> Result<i64, sqlx::Error> {
    // Newest first: the versions before it may be many, see ADR 30.
    sqlx::query_scalar("SELECT position FROM log_head WHERE log = 'events' ORDER BY position DESC LIMIT 1")
        .fetch_one(executor)
        .await
}
