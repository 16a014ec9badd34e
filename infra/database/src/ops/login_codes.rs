//! Codes that a front end exchanges for a login, as hashes.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use sqlx::PgPool;
use uuid::Uuid;

use crate::delete_in_batches;

/// A code, and the secret of the browser that may have it exchanged, both hashed.
#[derive(Debug, Clone, Copy)]
pub struct LoginCode<'a> {
    /// SHA-256 of the code.
    pub code_sha256: &'a str,
    /// SHA-256 of the browser's secret; empty if it has none.
    pub browser_sha256: &'a str,
}

/// Stores a code of `user`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn store<'a>(
    pool: &'a PgPool,
    code: LoginCode<'a>,
    user: Uuid,
    expires_at: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.login_codes (code_sha256, browser_sha256, user_id, expires_at) VALUES ($1, $2, $3, $4)",
    )
    .bind(code.code_sha256)
    .bind(code.browser_sha256)
    .bind(user)
    .bind(expires_at)
    .execute(pool)
    .await
    .map(drop)
}

/// The user of `code`, if it is valid at `now` and belongs to this browser. The code is void from then on in any case.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn redeem<'a>(
    pool: &'a PgPool,
    code: LoginCode<'a>,
    now: DateTime<Utc>,
) -> Result<Option<Uuid>, sqlx::Error> {
    let found: Option<(Uuid, bool)> = sqlx::query_as(
        "DELETE FROM ops.login_codes WHERE code_sha256 = $1
         RETURNING user_id, expires_at > $2 AND browser_sha256 IS NOT DISTINCT FROM $3",
    )
    .bind(code.code_sha256)
    .bind(now)
    .bind(code.browser_sha256)
    .fetch_optional(pool)
    .await?;
    Ok(found.and_then(|(user, is_valid)| is_valid.then_some(user)))
}

/// Deletes expired codes.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn purge(pool: &PgPool, now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    delete_in_batches(pool, "ops.login_codes", "t.expires_at <= $1", now).await.map(drop)
}
