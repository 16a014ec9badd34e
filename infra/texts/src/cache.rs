use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use signalbox_boxed::boxed;
use signalbox_database::{
    ops::extraction_cache::{self, CachedText},
    server_time, sweep_time,
};
use signalbox_documents::{Extraction, Options};
use uuid::Uuid;

use crate::{TextError, Texts};

/// A text that takes more than this part of all room is not remembered.
const LARGEST_PART: u64 = 16;

/// The inputs of a text: bytes, options, the version of this program, and the kind of name, which distinguishes kinds
/// of plain text. Also the principal of the entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

/// The principal of a cached text: entries of callers without a login count against their network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A logged-in user.
    User,
    /// A caller without a login.
    Network(String),
}

impl Origin {
    fn network(&self) -> Option<&str> {
        if let Self::Network(network) = self { Some(network) } else { None }
    }
}

impl Texts {
    /// The cached text of the document, if there is one.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn recall(&self, key: &CacheKey) -> Result<Option<Extraction>, TextError> {
        let now = server_time(&self.pool, &self.clock).await?;
        match extraction_cache::find(&self.pool, &key.0, self.expiry(now)).await? {
            Some(id) => self.read(id).await,
            None => Ok(None),
        }
    }

    /// Removes the cached text of a document whose owner deletes it.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn evict(&self, key: &CacheKey) -> Result<(), TextError> {
        let found = extraction_cache::find(&self.pool, &key.0, DateTime::UNIX_EPOCH).await?;
        let Some(id) = found else { return Ok(()) };
        self.drop_entry(&key.0, id).await
    }

    /// Removes the text `id`, and its entry: only this one, because the document may have been read again meanwhile.
    async fn drop_entry(&self, key: &str, id: Uuid) -> Result<(), TextError> {
        self.remove(id).await?;
        Ok(extraction_cache::forget(&self.pool, key, id).await?)
    }

    /// Remembers what the document gave, unless it lacks something that `options` ask for: another time it may not.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn remember(
        &self,
        key: &CacheKey,
        options: &Options,
        extraction: &Extraction,
        origin: &Origin,
    ) -> Result<(), TextError> {
        let is_whole =
            extraction.processors_applied.len() == options.processors.len() && !extraction.is_partial;
        let fits = extraction.content.len() as u64 <= self.cache_bytes / LARGEST_PART;
        if !is_whole || !fits || self.cache_hours == 0 {
            return Ok(());
        }
        let id = self.clock.new_id();
        let written = self.write(id, extraction).await?;
        let text = CachedText {
            key: &key.0,
            blob: id,
            size: i64::try_from(written.size).unwrap_or(i64::MAX),
            network: origin.network(),
        };
        // A text that has expired and is not swept yet gives way.
        let expiry = self.expiry(server_time(&self.pool, &self.clock).await?);
        let unnamed = extraction_cache::remember(&self.pool, text, expiry, self.clock.manual_time()).await?;
        match unnamed {
            Some(blob) => self.remove(blob).await,
            None => Ok(()),
        }
    }

    /// A text that was remembered by then has expired.
    fn expiry(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        now - TimeDelta::hours(i64::from(self.cache_hours))
    }

    /// Forgets what is too old, and the oldest of what is too much.
    ///
    /// # Errors
    /// [`TextError`].
    #[boxed]
    pub async fn forget(&self) -> Result<(), TextError> {
        let Some(now) = sweep_time(&self.pool, &self.clock).await? else { return Ok(()) };
        let most = i64::try_from(self.cache_bytes).unwrap_or(i64::MAX);
        let forgotten = extraction_cache::superfluous(&self.pool, self.expiry(now), most).await?;
        let mut failed = None;
        for (key, id) in forgotten {
            // One text that cannot be removed does not keep the others.
            if let Err(error) = self.drop_entry(&key, id).await {
                failed = Some(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
