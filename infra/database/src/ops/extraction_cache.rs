//! Blobs of texts that were extracted a while ago, by the inputs of the extraction.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use sqlx::PgPool;
use uuid::Uuid;

/// A text to remember.
#[derive(Debug, Clone, Copy)]
pub struct CachedText<'a> {
    /// Digest of its inputs.
    pub key: &'a str,
    /// Its name in the blob store.
    pub blob: Uuid,
    /// In bytes.
    pub size: i64,
    /// The network of a caller without a login.
    pub network: Option<&'a str>,
}

/// The blob of a text that was remembered after `since`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn find(pool: &PgPool, key: &str, since: DateTime<Utc>) -> Result<Option<Uuid>, sqlx::Error> {
    sqlx::query_scalar("SELECT blob_id FROM ops.extraction_cache WHERE key = $1 AND created_at > $2")
        .bind(key)
        .bind(since)
        .fetch_optional(pool)
        .await
}

/// Forgets the text `blob`: only this one, because the document may have been read again meanwhile.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn forget(pool: &PgPool, key: &str, blob: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("DELETE FROM ops.extraction_cache WHERE key = $1 AND blob_id = $2")
        .bind(key)
        .bind(blob)
        .execute(pool)
        .await
        .map(drop)
}

/// Remembers `text`, unless there is one that was remembered after `expiry`; returns the blob that nothing names any more: that
/// of an expired text, or of this one. `now` is PostgreSQL's time where it is `None`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn remember<'a>(
    pool: &'a PgPool,
    text: CachedText<'a>,
    expiry: DateTime<Utc>,
    now: Option<DateTime<Utc>>,
) -> Result<Option<Uuid>, sqlx::Error> {
    let replaced: Option<Option<Uuid>> = sqlx::query_scalar(
        "WITH expired AS (SELECT blob_id FROM ops.extraction_cache WHERE key = $1 AND created_at <= $6)
         INSERT INTO ops.extraction_cache AS known (key, blob_id, size, created_at, network)
         VALUES ($1, $2, $3, coalesce($4, clock_timestamp()), $5)
         ON CONFLICT (key) DO UPDATE
         SET blob_id = excluded.blob_id, size = excluded.size, created_at = excluded.created_at, network = excluded.network
         WHERE known.created_at <= $6
         RETURNING (SELECT blob_id FROM expired)",
    )
    .bind(text.key)
    .bind(text.blob)
    .bind(text.size)
    .bind(now)
    .bind(text.network)
    .bind(expiry)
    .fetch_optional(pool)
    .await?;
    Ok(replaced.unwrap_or(Some(text.blob)))
}

/// Keys and blobs of texts that were remembered by `expiry`, and of the oldest beyond `most` bytes in all.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn superfluous(
    pool: &PgPool,
    expiry: DateTime<Utc>,
    most: i64,
) -> Result<Vec<(String, Uuid)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT key, blob_id FROM (
            SELECT key, blob_id, created_at, sum(size) OVER (ORDER BY created_at DESC, key) AS total
              FROM ops.extraction_cache) remembered
          WHERE created_at <= $1 OR total > $2",
    )
    .bind(expiry)
    .bind(most)
    .fetch_all(pool)
    .await
}
