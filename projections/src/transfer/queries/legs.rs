//! Gateways' observations of legs in progress: that a body ended, that all bytes reached the destination, in which
//! session an agent worked. They are kept beside the log, because a broken connection changes no transfer. The worker
//! that ends attempts uses them. All times are PostgreSQL's.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_database::delete_in_batches;
use signalbox_domain::{
    kernel::{AgentId, TransferId},
    transfer::Leg,
};
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

/// Age after which the observations are no longer used.
const KEPT: TimeDelta = TimeDelta::days(7);

/// One attempt of a leg, as the gateways have seen it.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LegRow {
    /// The attempt.
    pub attempt: i32,
    /// The session in which its HTTP body began or the agent named it as its work.
    pub session: Option<Uuid>,
    /// Whether its last HTTP body has ended.
    pub body_ended: bool,
    /// The session in which the destination's TCP acknowledged all bytes.
    pub arrived_in: Option<Uuid>,
    /// Whether the agent polled after that, in the same session.
    pub polled: bool,
    /// How many bytes of a download were sent, from the start and without a gap, in this and earlier attempts.
    pub served_to: i64,
    /// Digest of the file that they are of.
    pub served_of: Option<String>,
}

/// A part of a file that an HTTP body has carried.
#[derive(Debug, Clone)]
pub struct Served {
    /// Digest of the file.
    pub sha256: String,
    /// First byte.
    pub start: i64,
    /// Behind the last byte.
    pub end: i64,
}

/// The observations of `leg` of `transfer` in `attempt`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn leg(
    pool: &PgPool,
    transfer: TransferId,
    leg: Leg,
    attempt: i32,
) -> Result<Option<LegRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT attempt, session, body_ended_at IS NOT NULL AS body_ended, arrived_in, polled_at IS NOT NULL AS polled,
                served_to, served_of
           FROM ops.transfer_legs WHERE transfer_id = $1 AND leg = $2 AND attempt = $3",
    )
    .bind(transfer)
    .bind(word(leg))
    .bind(attempt)
    .fetch_optional(pool)
    .await
}

/// Notes that `agent` names the present legs of these transfers as its work in its present session.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_named(pool: &PgPool, agent: AgentId, transfers: &[TransferId]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.transfer_legs AS l (transfer_id, leg, attempt, session)
         SELECT t.id, CASE WHEN t.phase IN ('dispatched', 'uploading') THEN 'upload' ELSE 'download' END, t.attempts, a.session
           FROM read.transfers t, read.agents a WHERE t.id = ANY($2) AND a.id = $1
         ON CONFLICT (transfer_id, leg) DO UPDATE SET attempt = EXCLUDED.attempt, session = EXCLUDED.session, noted_at = now(),
            body_ended_at = CASE WHEN l.attempt = EXCLUDED.attempt THEN l.body_ended_at END, arrived_in = NULL, polled_at = NULL
          WHERE l.attempt <= EXCLUDED.attempt",
    )
    .bind(agent)
    .bind(transfers)
    .execute(pool)
    .await
    .map(drop)
}

/// Notes that an HTTP body of `leg` has begun, in the present session of `agent`. Uploads by owners have no session.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_body_begun(
    pool: &PgPool,
    transfer: TransferId,
    leg: Leg,
    attempt: i32,
    agent: Option<AgentId>,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.transfer_legs AS l (transfer_id, leg, attempt, session)
         VALUES ($1, $2, $3, (SELECT session FROM read.agents WHERE id = $4))
         ON CONFLICT (transfer_id, leg) DO UPDATE SET attempt = EXCLUDED.attempt, session = EXCLUDED.session,
            body_ended_at = NULL, arrived_in = NULL, polled_at = NULL, noted_at = now()
          WHERE l.attempt <= EXCLUDED.attempt",
    )
    .bind(transfer)
    .bind(word(leg))
    .bind(attempt)
    .bind(agent)
    .execute(pool)
    .await
    .map(drop)
}

/// Notes that the HTTP body of `leg` has ended, and its content.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_body_ended(
    pool: &PgPool,
    transfer: TransferId,
    leg: Leg,
    attempt: i32,
    served: Option<Served>,
) -> Result<(), sqlx::Error> {
    let (start, end) = served.as_ref().map_or((0, 0), |part| (part.start, part.end));
    let sha256 = served.map(|part| part.sha256);
    sqlx::query(
        "INSERT INTO ops.transfer_legs AS l (transfer_id, leg, attempt, body_ended_at, served_of, served_to)
         VALUES ($1, $2, $3, now(), $4, CASE WHEN $5 = 0 THEN $6 ELSE 0 END)
         ON CONFLICT (transfer_id, leg) DO UPDATE SET body_ended_at = now(), noted_at = now(),
            served_of = coalesce($4, l.served_of),
            served_to = CASE WHEN $4 IS NULL THEN l.served_to
                             WHEN l.served_of = $4 AND $5 <= l.served_to THEN greatest(l.served_to, $6)
                             WHEN $5 = 0 THEN $6
                             WHEN l.served_of = $4 THEN l.served_to
                             ELSE 0 END
          WHERE l.attempt = EXCLUDED.attempt",
    )
    .bind(transfer)
    .bind(word(leg))
    .bind(attempt)
    .bind(sha256)
    .bind(start)
    .bind(end)
    .execute(pool)
    .await
    .map(drop)
}

/// Notes that all bytes of a download reached the agent in `session`, if that is still its session.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_arrival(
    pool: &PgPool,
    transfer: TransferId,
    attempt: i32,
    agent: AgentId,
    session: Uuid,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.transfer_legs AS l (transfer_id, leg, attempt, arrived_in)
         SELECT $1, 'download', $2, session FROM read.agents WHERE id = $3 AND session = $4
         ON CONFLICT (transfer_id, leg) DO UPDATE SET arrived_in = EXCLUDED.arrived_in, polled_at = NULL, noted_at = now()
          WHERE l.attempt = EXCLUDED.attempt",
    )
    .bind(transfer)
    .bind(attempt)
    .bind(agent)
    .bind(session)
    .execute(pool)
    .await
    .map(drop)
}

/// Notes that `agent` polls: messages sent to it before in its present session have arrived.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_poll(pool: &PgPool, agent: AgentId) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE ops.transfer_legs SET polled_at = now(), noted_at = now()
          WHERE arrived_in = (SELECT session FROM read.agents WHERE id = $1) AND polled_at IS NULL",
    )
    .bind(agent)
    .execute(pool)
    .await
    .map(drop)
}

/// Forgets legs of which nothing was noted for a week at `now`, the time of sweeps.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget_old_legs(pool: &PgPool, now: DateTime<Utc>) -> Result<u64, sqlx::Error> {
    let old = "t.noted_at < least($1, now() - interval '7 days')";
    delete_in_batches(pool, "ops.transfer_legs", old, now - KEPT).await
}

fn word(leg: Leg) -> &'static str {
    match leg {
        Leg::Upload => "upload",
        Leg::Download => "download",
    }
}
