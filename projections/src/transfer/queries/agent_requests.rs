//! Requests of transfers that agents have taken charge of, beside the sessions that they took them in.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_database::delete_in_batches;
use signalbox_domain::kernel::AgentId;
use sqlx::PgPool;

/// Age after which a request holds nothing back.
const KEPT: TimeDelta = TimeDelta::days(7);

/// A leg of a transfer that an agent is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Integer of the transfer.
    pub transfer: i64,
    /// Word of the leg.
    pub leg: &'static str,
    /// The attempt it was asked for.
    pub attempt: i32,
}

/// Transfer, leg, and attempt of a request; attempt 0 stands for all attempts.
pub type LegKey = (i64, String, i32);

/// Records that `agent` has taken charge of `taken`, each leg of which stands there once.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn record_taken(pool: &PgPool, agent: AgentId, taken: &[Request]) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.agent_requests (agent_id, transfer, leg, attempt, session, taken_at, ended)
         SELECT a.id, t.transfer, t.leg, t.attempt, a.session, now(), false
           FROM read.agents a, unnest($2::bigint[], $3::text[], $4::int[]) AS t (transfer, leg, attempt)
          WHERE a.id = $1
         ON CONFLICT (agent_id, transfer, leg) DO UPDATE
            SET attempt = excluded.attempt, session = excluded.session, taken_at = excluded.taken_at, ended = false",
    )
    .bind(agent)
    .bind(taken.iter().map(|request| request.transfer).collect::<Vec<_>>())
    .bind(taken.iter().map(|request| request.leg).collect::<Vec<_>>())
    .bind(taken.iter().map(|request| request.attempt).collect::<Vec<_>>())
    .execute(pool)
    .await
    .map(drop)
}

/// Those requests about `transfers` that `agent` took in its present session within the last `seconds`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn taken_within(
    pool: &PgPool,
    agent: AgentId,
    transfers: &[i64],
    seconds: f64,
) -> Result<Vec<LegKey>, sqlx::Error> {
    sqlx::query_as(
        "SELECT r.transfer, r.leg, r.attempt FROM ops.agent_requests r JOIN read.agents a ON a.id = r.agent_id
          WHERE r.agent_id = $1 AND r.transfer = ANY($2) AND r.session = a.session
            AND r.taken_at > now() - make_interval(secs => $3)",
    )
    .bind(agent)
    .bind(transfers)
    .bind(seconds)
    .fetch_all(pool)
    .await
}

/// Those requests about `transfers` that `agent` took in its present session and that have not ended, for all attempts.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn not_ended(pool: &PgPool, agent: AgentId, transfers: &[i64]) -> Result<Vec<LegKey>, sqlx::Error> {
    sqlx::query_as(
        "SELECT r.transfer, r.leg, 0 FROM ops.agent_requests r JOIN read.agents a ON a.id = r.agent_id
          WHERE r.agent_id = $1 AND r.transfer = ANY($2) AND r.session = a.session AND NOT r.ended",
    )
    .bind(agent)
    .bind(transfers)
    .fetch_all(pool)
    .await
}

/// Those of `requests` that no agent needs to receive any more: the transfer has ended, or is past that attempt or leg.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn outdated(pool: &PgPool, requests: &[Request]) -> Result<Vec<LegKey>, sqlx::Error> {
    // A read model that lags shows an earlier attempt or phase, and then the request is kept.
    sqlx::query_as(
        "SELECT r.transfer, r.leg, r.attempt
           FROM unnest($1::bigint[], $2::text[], $3::int[]) AS r (transfer, leg, attempt)
           JOIN read.transfers t ON t.number = r.transfer
          WHERE t.phase = 'done' OR t.attempts > r.attempt
             OR (t.attempts = r.attempt AND r.leg = 'upload' AND t.phase IN ('staged', 'downloading'))",
    )
    .bind(requests.iter().map(|request| request.transfer).collect::<Vec<_>>())
    .bind(requests.iter().map(|request| request.leg).collect::<Vec<_>>())
    .bind(requests.iter().map(|request| request.attempt).collect::<Vec<_>>())
    .fetch_all(pool)
    .await
}

/// Records that the work of `agent` for `transfer` has ended: one leg of it, or all.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn record_end(
    pool: &PgPool,
    agent: AgentId,
    transfer: i64,
    leg: Option<&'static str>,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE ops.agent_requests SET ended = true
          WHERE agent_id = $1 AND transfer = $2 AND ($3::text IS NULL OR leg = $3) AND NOT ended",
    )
    .bind(agent)
    .bind(transfer)
    .bind(leg)
    .execute(pool)
    .await
    .map(drop)
}

/// Deletes requests that are too old at `now`, the time of sweeps, to hold anything back.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn purge(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let old = "t.taken_at < least($1, now() - interval '7 days')";
    delete_in_batches(pool, "ops.agent_requests", old, now - KEPT).await.map(drop)
}
