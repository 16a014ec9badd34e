//! The table of streams and events that projections and workers have set aside.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_database::{clear_fault, report_fault};
use signalbox_event_store::EventKey;
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgExecutor, PgPool};

use super::Held;
use crate::Poison;

/// Later than any retry that is planned: it was planned while PostgreSQL's clock was ahead.
const IMPLAUSIBLE: &str = "now() + interval '25 hours'";
/// Streams that one list holds at most.
const MAX_LISTED: i64 = 1000;

/// A stream that is set aside.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct SetAside {
    /// The projection.
    pub projection: String,
    /// Position of the first event that waits.
    pub position: i64,
    /// Type of the aggregate; empty for an event that is not in the log.
    pub aggregate_type: String,
    /// Id of the aggregate.
    pub aggregate_id: String,
    /// Place of the first event that waits in its stream.
    pub sequence: i64,
    /// Word of the first event that waits.
    pub event_type: String,
    /// Why it cannot be applied.
    pub error: String,
    /// When it was set aside.
    pub seen_at: DateTime<Utc>,
    /// Whether an earlier version set aside this event alone; only a rebuild applies it.
    pub alone: bool,
    /// How often a retry failed.
    pub attempts: i32,
    /// When the runner retries it.
    pub retry_at: DateTime<Utc>,
    /// Events that wait, the first one included.
    pub waiting: i64,
}

impl SetAside {
    /// Type and id of the aggregate.
    pub(super) fn key(&self) -> (&str, &str) {
        (&self.aggregate_type, &self.aggregate_id)
    }
}

/// Notes that the stream of `poison` waits from that event on.
pub(crate) async fn note(
    connection: &mut PgConnection,
    projection: &str,
    poison: &Poison,
) -> Result<(), sqlx::Error> {
    let Poison { key, error } = poison;
    let stream = format!("{} {}", key.aggregate_type, key.aggregate_id);
    tracing::error!(projection, position = key.position, stream, error, "a stream is set aside");
    note_waiting(connection, projection, key, error, false).await
}

/// Notes that the event `key`, and later events of its stream unless it waits `alone`, wait for a retry by
/// `follower`, a projection or a worker.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_waiting(
    connection: &mut PgConnection,
    follower: &str,
    key: &EventKey,
    error: &str,
    alone: bool,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO read.poisonous_events
            (projection, position, aggregate_type, aggregate_id, sequence, event_type, error, alone, retry_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, now() + interval '1 minute')
             ON CONFLICT (projection, position) DO UPDATE SET error = excluded.error",
    )
    .bind(follower)
    .bind(key.position)
    .bind(&key.aggregate_type)
    .bind(&key.aggregate_id)
    .bind(key.sequence)
    .bind(&key.event_type)
    .bind(error)
    .bind(alone)
    .execute(connection)
    .await?;
    Ok(())
}

/// Those of the streams of `keys` that are set aside.
pub(crate) async fn held_of(
    connection: &mut PgConnection,
    projection: &str,
    ids: &[String],
) -> Result<Held, sqlx::Error> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "SELECT aggregate_type, aggregate_id, min(position) FROM read.poisonous_events
          WHERE projection = $1 AND aggregate_id = ANY($2) AND NOT alone GROUP BY 1, 2",
    )
    .bind(projection)
    .bind(ids)
    .fetch_all(connection)
    .await?;
    Ok(Held(rows.into_iter().map(|(kind, id, position)| ((kind, id), position)).collect()))
}

/// Whether `projection` has set anything aside.
pub(crate) async fn has_any(executor: impl PgExecutor<'_>, projection: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM read.poisonous_events WHERE projection = $1)")
        .bind(projection)
        .fetch_one(executor)
        .await
}

/// Whether `projection` has not applied the event of this stream at `position`, because the stream waits.
///
/// # Errors
/// The database's error.
pub async fn is_set_aside(
    executor: impl PgExecutor<'_>,
    projection: &str,
    aggregate_type: &str,
    aggregate_id: &str,
    position: i64,
) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM read.poisonous_events
          WHERE projection = $1 AND (position = $4
             OR aggregate_type = $2 AND aggregate_id = $3 AND NOT alone AND position <= $4))",
    )
    .bind(projection)
    .bind(aggregate_type)
    .bind(aggregate_id)
    .bind(position)
    .fetch_one(executor)
    .await
}

const SELECT: &str = "SELECT p.projection, p.position, coalesce(p.aggregate_type, '') AS aggregate_type,
        coalesce(p.aggregate_id, '') AS aggregate_id, coalesce(p.sequence, 0) AS sequence,
        coalesce(p.event_type, '') AS event_type, p.error, p.seen_at, p.alone, p.attempts, p.retry_at,
        CASE WHEN p.alone THEN 1 ELSE (SELECT count(*) FROM events e, read.checkpoints c
          WHERE c.projection = p.projection AND e.aggregate_type = p.aggregate_type
            AND e.aggregate_id = p.aggregate_id AND e.sequence >= p.sequence AND e.position <= c.position) END AS waiting
   FROM read.poisonous_events p";

/// The streams that `projection`, or any, has set aside, oldest first; at most a thousand.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn set_aside_streams(
    pool: &PgPool,
    projection: Option<&str>,
) -> Result<Vec<SetAside>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{SELECT} WHERE $1::text IS NULL OR p.projection = $1 ORDER BY p.seen_at, p.position LIMIT $2"
    ))
    .bind(projection)
    .bind(MAX_LISTED)
    .fetch_all(pool)
    .await
}

/// Has the worker that skipped an event retry it at its next step.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn retry_soon(pool: &PgPool, skipped: &SetAside) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE read.poisonous_events SET retry_at = now() WHERE projection = $1 AND position = $2")
        .bind(&skipped.projection)
        .bind(skipped.position)
        .execute(pool)
        .await?;
    Ok(())
}

/// How many streams each projection has set aside; those that have none are left out.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn set_aside_counts(pool: &PgPool) -> Result<Vec<(String, i64)>, sqlx::Error> {
    sqlx::query_as("SELECT projection, count(*) FROM read.poisonous_events GROUP BY 1 ORDER BY 1")
        .fetch_all(pool)
        .await
}

/// The stream that `P` should retry next, if it is time.
pub(crate) async fn due_retry(pool: &PgPool, projection: &str) -> Result<Option<SetAside>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{SELECT} WHERE p.projection = $1 AND NOT p.alone AND (p.retry_at <= now() OR p.retry_at > {IMPLAUSIBLE})
          ORDER BY p.retry_at LIMIT 1"
    ))
    .bind(projection)
    .fetch_optional(pool)
    .await
}

/// Reports the streams that `projection` has set aside, or clears the report.
pub(crate) async fn report(pool: &PgPool, projection: &str) -> Result<(), sqlx::Error> {
    // Apart from `projection.…`, which is cleared whenever the projection moves.
    let part = format!("projection.{projection}.events");
    report_waiting(pool, projection, &part, "streams are set aside").await
}

/// Reports as a fault of `part` how many events or streams (by `what`) `follower` has set aside, or clears it.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn report_waiting(
    pool: &PgPool,
    follower: &str,
    part: &str,
    what: &str,
) -> Result<(), sqlx::Error> {
    let (count, first): (i64, Option<i64>) =
        sqlx::query_as("SELECT count(*), min(position) FROM read.poisonous_events WHERE projection = $1")
            .bind(follower)
            .fetch_one(pool)
            .await?;
    let Some(first) = first else { return clear_fault(pool, part).await.map(drop) };
    let reason =
        format!("{count} {what}, the first at event {first}: `signalbox projections poison list` shows why");
    report_fault(pool, part, &reason).await
}

/// Rows have changed without a new event.
pub(crate) async fn bump_revision(
    connection: &mut PgConnection,
    projection: &str,
) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE read.checkpoints SET revision = revision + 1 WHERE projection = $1")
        .bind(projection)
        .execute(connection)
        .await?;
    Ok(())
}

/// The streams that are set aside, and from which position on.
pub(super) async fn live_streams(
    connection: &mut PgConnection,
    name: &str,
) -> Result<Vec<((String, String), i64)>, sqlx::Error> {
    let rows: Vec<(String, String, i64)> = sqlx::query_as(
        "SELECT aggregate_type, aggregate_id, min(position) FROM read.poisonous_events
          WHERE projection = $1 AND aggregate_type IS NOT NULL GROUP BY 1, 2",
    )
    .bind(name)
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|(kind, id, position)| ((kind, id), position)).collect())
}

/// Positions of events that `follower` skipped and should retry now, `limit` at most. Each retry doubles the backoff. A retry in
/// more than a day was planned while PostgreSQL's clock was ahead.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn due_skipped(pool: &PgPool, follower: &str, limit: i64) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "UPDATE read.poisonous_events
            SET attempts = attempts + 1,
                retry_at = now() + least(interval '1 minute' * 2 ^ least(attempts + 1, 11), interval '1 hour')
          WHERE projection = $1 AND position IN (SELECT position FROM read.poisonous_events
                 WHERE projection = $1 AND (retry_at <= now() OR retry_at > now() + interval '25 hours')
                 ORDER BY retry_at LIMIT $2)
      RETURNING position",
    )
    .bind(follower)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// `follower` starts to handle the event at `position` again: [`forget_skipped`] keeps it if it is skipped once more.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn begin_skipped(pool: &PgPool, follower: &str, position: i64) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE read.poisonous_events SET error = '' WHERE projection = $1 AND position = $2")
        .bind(follower)
        .bind(position)
        .execute(pool)
        .await
        .map(drop)
}

/// `follower` has handled the event at `position`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_skipped(pool: &PgPool, follower: &str, position: i64) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM read.poisonous_events WHERE projection = $1 AND position = $2 AND error = ''")
        .bind(follower)
        .bind(position)
        .execute(pool)
        .await
        .map(drop)
}

/// Followers whose names are like `pattern` and that have skipped events.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn skipping_followers(pool: &PgPool, pattern: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar("SELECT DISTINCT projection FROM read.poisonous_events WHERE projection LIKE $1")
        .bind(pattern)
        .fetch_all(pool)
        .await
}
