//! Keys that sign JWTs.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::PgPool;

use crate::begin;

/// A signing key without its secret.
#[derive(Debug, FromRow)]
pub struct SigningKey {
    /// Names it in JWTs.
    pub kid: String,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Since when it verifies nothing.
    pub retired_at: Option<DateTime<Utc>>,
}

/// All signing keys, the newest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn signing_keys(pool: &PgPool) -> Result<Vec<SigningKey>, sqlx::Error> {
    sqlx::query_as(
        "SELECT kid, created_at, retired_at FROM ops.signing_keys ORDER BY created_at DESC, kid DESC",
    )
    .fetch_all(pool)
    .await
}

/// `kid` and secret of each key in force, the newest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn secrets_in_force(pool: &PgPool) -> Result<Vec<(String, Vec<u8>)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT kid, secret FROM ops.signing_keys WHERE retired_at IS NULL ORDER BY created_at DESC, kid DESC",
    )
    .fetch_all(pool)
    .await
}

/// The secrets of all keys, retired ones too.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn all_secrets(pool: &PgPool) -> Result<Vec<Vec<u8>>, sqlx::Error> {
    sqlx::query_scalar("SELECT secret FROM ops.signing_keys").fetch_all(pool).await
}

/// Adds a key, and retires those before the last one.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn rotate(pool: &PgPool, kid: &str, secret: &[u8], now: DateTime<Utc>) -> Result<(), sqlx::Error> {
    let mut transaction = begin(pool, "BEGIN").await?;
    // Later than every other key, although one of them may have been made while the clock was ahead: the newest one signs.
    sqlx::query(
        "INSERT INTO ops.signing_keys (kid, secret, created_at)
         SELECT $1, $2, greatest($3, max(created_at) + interval '1 microsecond') FROM ops.signing_keys",
    )
    .bind(kid)
    .bind(secret)
    .bind(now)
    .execute(&mut *transaction)
    .await?;
    sqlx::query(
        "UPDATE ops.signing_keys SET retired_at = $1 WHERE retired_at IS NULL AND kid NOT IN (
            SELECT kid FROM ops.signing_keys ORDER BY created_at DESC, kid DESC LIMIT 2)",
    )
    .bind(now)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}
