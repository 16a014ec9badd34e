//! What documents gave, in the blob store: texts of jobs under their own keys, and texts that answer for whoever sends
//! the same document with the same options.
//!
//! The memory is bounded in time and bytes, and may be lost: what is not remembered is read again. It is one per user, so
//! that nobody learns from a quick answer what others have sent; those without a login share one.

mod cache;

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

pub use cache::CacheKey;

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
    /// What is stored is no text.
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
    /// Texts in `blobs`; what is remembered is noted in the database.
    pub fn new(pool: PgPool, blobs: BlobStore, clock: Clock, config: &Config) -> Self {
        let cache_bytes = u64::from(config.cache_mb) << 20;
        Self { pool, blobs, clock, cache_hours: config.cache_hours, cache_bytes }
    }

    /// Writes what a document gave under `id`; durable when it returns.
    ///
    /// # Errors
    /// [`TextError`].
    pub async fn write(&self, id: Uuid, extraction: &Extraction) -> Result<Written, TextError> {
        let bytes = Bytes::from(serde_json::to_vec(extraction)?);
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
    pub async fn remove(&self, id: Uuid) -> Result<(), TextError> {
        Ok(self.blobs.delete_transfer(id).await?)
    }
}
