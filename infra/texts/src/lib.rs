//! Extracted texts in the blob store: texts of jobs under their own keys, and a cache that answers repeated documents
//! with the same options.
//!
//! The cache is bounded in time and bytes, and may be lost: missing texts are extracted again. Each user has one, so
//! that a quick answer does not reveal documents of others; callers without a login share one.

mod cache;

use signalbox_boxed::boxed;
use std::io;

use bytes::Bytes;
use futures::{TryStreamExt, stream};
use signalbox_blob_store::{BlobError, BlobKey, BlobStore, Receive, Received, Start};
use signalbox_clock::Clock;
use signalbox_config::Extraction as Config;
use signalbox_documents::Extraction;
use signalbox_domain::kernel::Sha256Hex;
use sqlx::PgPool;
use uuid::Uuid;

pub use cache::{CacheKey, Origin};

/// The name of a text in its folder of the blob store.
const NAME: &str = "text";

/// Why a text cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TextError {
    /// The blob store failed.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Its bytes cannot be read from disk.
    #[error("a text cannot be read: {0}")]
    Read(#[from] io::Error),
    /// A stored text is damaged.
    #[error("a stored text is damaged: {0}")]
    Damaged(#[from] serde_json::Error),
    /// The database failed.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
}

/// A text that was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// In bytes, as it is stored.
    pub size: u64,
    /// Of the same.
    pub sha256: Sha256Hex,
}

/// Where texts are. Clones share it.
#[derive(Debug, Clone)]
pub struct Texts {
    pool: PgPool,
    blobs: BlobStore,
    clock: Clock,
    cache_hours: u32,
    cache_bytes: u64,
}

impl Texts {
    /// Texts in `blobs`; remembered ones are noted in the database.
    pub fn new(pool: PgPool, blobs: BlobStore, clock: Clock, config: &Config) -> Self {
        let cache_bytes = u64::from(config.cache_mb) << 20;
        Self { pool, blobs, clock, cache_hours: config.cache_hours, cache_bytes }
    }

    /// Writes what a document gave under `id`; durable when it returns.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn write(&self, id: Uuid, extraction: &Extraction) -> Result<Written, TextError> {
        self.write_bytes(id, Self::encode(extraction)?).await
    }

    /// The stored form of an extracted text.
    ///
    /// # Errors
    /// [`TextError::Damaged`] when it does not serialise.
    pub fn encode(extraction: &Extraction) -> Result<Bytes, TextError> {
        Ok(Bytes::from(serde_json::to_vec(extraction)?))
    }

    /// Writes what [`Self::encode`] gave; durable when it returns.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn write_bytes(&self, id: Uuid, bytes: Bytes) -> Result<Written, TextError> {
        let limit = bytes.len() as u64;
        let request = Receive { start: Start::Anew, limit, expected_sha256: None, total: Some(limit) };
        let body = stream::iter([Ok::<_, io::Error>(bytes)]);
        match self.blobs.receive(&BlobKey::new(id, NAME), request, body, |_| {}).await? {
            Received::Complete { size, sha256 } => Ok(Written { size, sha256 }),
            Received::Partial { size } => Err(BlobError::Interrupted { received: size, source: None }.into()),
        }
    }

    /// The text under `id`; none when it is not kept any more.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn read(&self, id: Uuid) -> Result<Option<Extraction>, TextError> {
        let (size, body) = match self.blobs.read(&BlobKey::new(id, NAME), None).await {
            Ok(found) => found,
            Err(BlobError::NotFound) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
        let mut body = std::pin::pin!(body);
        while let Some(piece) = body.try_next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// Removes the text under `id`, if there is one.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn remove(&self, id: Uuid) -> Result<(), TextError> {
        Ok(self.blobs.delete_transfer(id).await?)
    }
}
