use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use crate::RecordedEvent;

/// What makes a [`RecordedEvent`], except for what is large: `payload` and `metadata` follow.
pub(crate) const HEADER: &str =
    "SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version, recorded_at";

/// At most `limit` events after `position`, in order. Because positions are gapless and in commit order, the
/// first one is `position + 1`, or there is none.
///
/// # Errors
/// The database's error.
pub async fn read_after<J: DeserializeOwned + Send + Unpin + 'static>(
    executor: impl PgExecutor<'_>,
    position: i64,
    limit: i64,
) -> Result<Vec<RecordedEvent<J>>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{HEADER}, payload, metadata FROM events WHERE position > $1 ORDER BY position LIMIT $2"
    ))
    .bind(position)
    .bind(limit)
    .fetch_all(executor)
    .await
}

/// All events after `position`, at most `limit`, in order; those that are not of `aggregates` without their payload, and
/// all without their metadata: for readers that pass over the others and yet have to know that none is missing.
///
/// # Errors
/// The database's error.
pub async fn read_all_for(
    executor: impl PgExecutor<'_>,
    position: i64,
    limit: i64,
    aggregates: &[&str],
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    read_all(executor, position, limit, "aggregate_type", aggregates).await
}

/// All events after `position`, at most `limit`, in order; those that are not of `event_types` without their payload, and all
/// without their metadata: for readers that want few kinds of events and yet have to know that none is missing.
///
/// # Errors
/// The database's error.
pub async fn read_all_with(
    executor: impl PgExecutor<'_>,
    position: i64,
    limit: i64,
    event_types: &[&str],
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    read_all(executor, position, limit, "event_type", event_types).await
}

async fn read_all(
    executor: impl PgExecutor<'_>,
    position: i64,
    limit: i64,
    column: &'static str,
    wanted: &[&str],
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{HEADER}, CASE WHEN {column} = ANY($3) THEN payload ELSE 'null' END AS payload, 'null'::jsonb AS metadata
           FROM events WHERE position > $1 ORDER BY position LIMIT $2"
    ))
    .bind(position)
    .bind(limit)
    .bind(wanted)
    .fetch_all(executor)
    .await
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
pub async fn read_wanted(
    executor: impl PgExecutor<'_>,
    position: i64,
    last: i64,
    aggregates: &[&str],
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{HEADER}, payload, 'null'::jsonb AS metadata
           FROM events WHERE position > $1 AND position <= $2 AND aggregate_type = ANY($3) ORDER BY position"
    ))
    .bind(position)
    .bind(last)
    .bind(aggregates)
    .fetch_all(executor)
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

/// The events at `positions`, in order, without their metadata.
///
/// # Errors
/// The database's error.
pub async fn read_at(
    executor: impl PgExecutor<'_>,
    positions: &[i64],
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{HEADER}, payload, 'null'::jsonb AS metadata FROM events WHERE position = ANY($1) ORDER BY position"
    ))
    .bind(positions)
    .fetch_all(executor)
    .await
}

/// Those events of several aggregates of a type whose words are `event_types`, each stream oldest first, without their metadata.
///
/// # Errors
/// The database's error.
pub async fn read_streams(
    pool: &PgPool,
    aggregate_type: &str,
    ids: &[Uuid],
    event_types: &[&str],
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    let ids: Vec<_> = ids.iter().map(Uuid::to_string).collect();
    // Asked for one stream after the other: of all of them together, PostgreSQL may think that reading the whole log is quicker.
    sqlx::query_as(
        "SELECT stream.* FROM unnest($2) AS wanted (id) CROSS JOIN LATERAL (
             SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version, recorded_at, payload,
                    'null'::jsonb AS metadata
               FROM events WHERE aggregate_type = $1 AND aggregate_id = wanted.id AND event_type = ANY($3)
              ORDER BY sequence) AS stream",
    )
    .bind(aggregate_type)
    .bind(ids)
    .bind(event_types)
    .fetch_all(pool)
    .await
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
        match (text.trim().parse(), DateTime::parse_from_rfc3339(text.trim())) {
            (Ok(position), _) => Ok(Self::Position(position)),
            (_, Ok(time)) => Ok(Self::Time(time.to_utc())),
            _ => Err(InvalidMoment),
        }
    }
}

/// At most `limit` events of one aggregate after version `version`, oldest first, as far as there were at `moment`.
///
/// # Errors
/// The database's error.
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

/// Position of the newest event of one aggregate; `None` when it has none.
///
/// # Errors
/// The database's error.
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

/// Whether an event of one aggregate holds the key `other` in its payload.
///
/// # Errors
/// The database's error.
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

/// Position of the last event that was recorded before `time`; 0 when there is none. Positions are in the order of time, but
/// for steps of the clock.
///
/// # Errors
/// The database's error.
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
    sqlx::query_scalar("SELECT position FROM log_head WHERE log = 'events'").fetch_one(executor).await
}
