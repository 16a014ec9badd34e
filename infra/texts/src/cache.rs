use chrono::TimeDelta;
use sha2::{Digest, Sha256};
use signalbox_documents::{Extraction, Options};
use uuid::Uuid;

use crate::{TextError, Texts};

/// A text that takes more than this part of all room is not remembered.
const LARGEST_PART: u64 = 16;

/// What a text follows from: bytes, options, this version of the program, and the kind of name, which tells kinds of plain
/// text apart. And for whom it is remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheKey(String);

impl CacheKey {
    /// The key of the document with the digest `sha256`, called `filename`, for `owner` or for those without a login.
    ///
    /// # Errors
    /// [`TextError::Damaged`] when the options do not serialise.
    pub fn new(
        owner: Option<Uuid>,
        sha256: &str,
        filename: &str,
        options: &Options,
    ) -> Result<Self, TextError> {
        let kind = filename.rsplit_once('.').map_or("", |(_, kind)| kind).to_ascii_lowercase();
        let version = env!("CARGO_PKG_VERSION");
        let key = serde_json::to_vec(&(version, owner, sha256, kind, options))?;
        Ok(Self(hex::encode(Sha256::digest(key))))
    }
}

impl Texts {
    /// What the document gave when it was read last, if that is remembered.
    ///
    /// # Errors
    /// [`TextError`].
    pub async fn recall(&self, key: &CacheKey) -> Result<Option<Extraction>, TextError> {
        let id: Option<Uuid> =
            sqlx::query_scalar("SELECT blob_id FROM ops.extraction_cache WHERE key = $1 AND created_at > $2")
                .bind(&key.0)
                .bind(self.clock.now() - TimeDelta::hours(i64::from(self.cache_hours)))
                .fetch_optional(&self.pool)
                .await?;
        match id {
            Some(id) => self.read(id).await,
            None => Ok(None),
        }
    }

    /// Remembers what the document gave, unless it lacks something that `options` ask for: another time it may not.
    ///
    /// # Errors
    /// [`TextError`].
    pub async fn remember(
        &self,
        key: &CacheKey,
        options: &Options,
        extraction: &Extraction,
    ) -> Result<(), TextError> {
        let is_whole = extraction.processors_applied.len() == options.processors.len();
        let fits = extraction.content.len() as u64 <= self.cache_bytes / LARGEST_PART;
        if !is_whole || !fits || self.cache_hours == 0 {
            return Ok(());
        }
        let id = self.clock.new_id();
        let written = self.write(id, extraction).await?;
        let added = sqlx::query(
            "INSERT INTO ops.extraction_cache (key, blob_id, size, created_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
        )
        .bind(&key.0)
        .bind(id)
        .bind(i64::try_from(written.size).unwrap_or(i64::MAX))
        .bind(self.clock.now())
        .execute(&self.pool)
        .await?;
        if added.rows_affected() == 0 {
            self.remove(id).await?;
        }
        Ok(())
    }

    /// Forgets what is too old, and the oldest of what is too much.
    ///
    /// # Errors
    /// [`TextError`].
    pub async fn forget(&self) -> Result<(), TextError> {
        let forgotten: Vec<(String, Uuid)> = sqlx::query_as(
            "SELECT key, blob_id FROM (
                SELECT key, blob_id, created_at, sum(size) OVER (ORDER BY created_at DESC, key) AS total
                  FROM ops.extraction_cache) remembered
              WHERE created_at <= $1 OR total > $2",
        )
        .bind(self.clock.now() - TimeDelta::hours(i64::from(self.cache_hours)))
        .bind(i64::try_from(self.cache_bytes).unwrap_or(i64::MAX))
        .fetch_all(&self.pool)
        .await?;
        for (key, id) in forgotten {
            self.remove(id).await?;
            // Only this one: it may have been read again meanwhile.
            sqlx::query("DELETE FROM ops.extraction_cache WHERE key = $1 AND blob_id = $2")
                .bind(key)
                .bind(id)
                .execute(&self.pool)
                .await?;
        }
        Ok(())
    }
}
