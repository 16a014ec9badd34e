//! Requests with an `Idempotency-Key`: seed, answer and secret of each, kept for a day.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use crate::delete_in_batches;

/// How long an answer is kept; `begin` has it as `24 hours`.
const KEPT: TimeDelta = TimeDelta::hours(24);

/// A request by its key, which belongs to one principal.
#[derive(Debug, Clone, Copy)]
pub struct RequestKey<'a> {
    /// The authenticated principal.
    pub principal: &'a str,
    /// The client's key.
    pub key: &'a str,
}

/// The first request with a key.
#[derive(Debug, FromRow)]
pub struct FirstRequest {
    /// Digest of target and body.
    pub fingerprint: Vec<u8>,
    /// All ids of the request follow from it.
    pub seed: Uuid,
    /// Its answer; absent while it has none.
    pub sealed_answer: Option<String>,
}

/// The first request with `key`: this one, unless there was another within the last day. `now` is PostgreSQL's time where it
/// is `None`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn begin<'a>(
    pool: &'a PgPool,
    key: RequestKey<'a>,
    fingerprint: &'a [u8],
    seed: Uuid,
    now: Option<DateTime<Utc>>,
) -> Result<FirstRequest, sqlx::Error> {
    // The update that changes nothing makes the row visible to RETURNING; a day later, by PostgreSQL's clock,
    // the key is free again.
    sqlx::query_as(
        "INSERT INTO ops.idempotent_requests AS r (principal, key, fingerprint, seed, created_at)
         VALUES ($1, $2, $3, $4, coalesce($5, clock_timestamp()))
         ON CONFLICT (principal, key) DO UPDATE SET
            fingerprint = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN excluded.fingerprint ELSE r.fingerprint END,
            seed = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN excluded.seed ELSE r.seed END,
            sealed_answer = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN NULL ELSE r.sealed_answer END,
            sealed_secret = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN NULL ELSE r.sealed_secret END,
            created_at = CASE WHEN r.created_at < excluded.created_at - interval '24 hours' THEN excluded.created_at ELSE r.created_at END
         RETURNING fingerprint, seed, sealed_answer",
    )
    .bind(key.principal)
    .bind(key.key)
    .bind(fingerprint)
    .bind(seed)
    .bind(now)
    .fetch_one(pool)
    .await
}

/// The sealed secret of the request: `sealed`, unless there is one. `None` if another request has the key now.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn store_secret<'a>(
    pool: &'a PgPool,
    key: RequestKey<'a>,
    seed: Uuid,
    sealed: &'a str,
) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "UPDATE ops.idempotent_requests SET sealed_secret = coalesce(sealed_secret, $4)
          WHERE principal = $1 AND key = $2 AND seed = $3 RETURNING sealed_secret",
    )
    .bind(key.principal)
    .bind(key.key)
    .bind(seed)
    .bind(sealed)
    .fetch_optional(pool)
    .await
}

/// Keeps the sealed answer of the request.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn store_answer<'a>(
    pool: &'a PgPool,
    key: RequestKey<'a>,
    seed: Uuid,
    sealed: &'a str,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "UPDATE ops.idempotent_requests SET sealed_answer = $4 WHERE principal = $1 AND key = $2 AND seed = $3",
    )
    .bind(key.principal)
    .bind(key.key)
    .bind(seed)
    .bind(sealed)
    .execute(pool)
    .await
    .map(drop)
}

/// Deletes requests that are too old to be repeated.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn purge(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    delete_in_batches(pool, "ops.idempotent_requests", "t.created_at < $1", now - KEPT).await.map(drop)
}
