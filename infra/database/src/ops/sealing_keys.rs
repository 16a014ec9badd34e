//! Keys that seal the secrets in events.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use sqlx::PgPool;

/// Name and secret of each key, the newest last.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn sealing_keys(pool: &PgPool) -> Result<Vec<(String, Vec<u8>)>, sqlx::Error> {
    sqlx::query_as("SELECT name, secret FROM ops.sealing_keys ORDER BY created_at, name")
        .fetch_all(pool)
        .await
}

/// Adds a key, which is the newest from then on.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn add_sealing_key(
    pool: &PgPool,
    name: &str,
    secret: &[u8],
    now: DateTime<Utc>,
) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO ops.sealing_keys (name, secret, created_at)
         SELECT $1, $2, greatest($3, max(created_at) + interval '1 microsecond') FROM ops.sealing_keys",
    )
    .bind(name)
    .bind(secret)
    .bind(now)
    .execute(pool)
    .await
    .map(drop)
}
