use std::time::Duration;

use object_store::{ObjectStoreExt, PutMode, UpdateVersion};
use tokio::time::sleep;

use super::{BucketContext, RemoteStore, record::Record};
use crate::{BlobError, BlobKey};

/// Records have a few hundred bytes; one of a file that arrived in very many pieces may have some hundred thousand.
const RECORD_BYTES: u64 = 4 * 1024 * 1024;
/// Limit of tries of a write whose outcome is unknown, as long as the record shows that it has not been done.
const TRIES: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// A record as it was read or written last.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    store: RemoteStore,
    key: BlobKey,
    pub(super) record: Record,
    /// None where there is no record.
    version: Option<UpdateVersion>,
}

/// Why a record was not written.
pub(super) enum Lost {
    /// Another process has changed it to this.
    To(Box<Slot>),
    Failed(BlobError),
}

impl Slot {
    /// A record that does not exist yet, as far as is known.
    pub(super) fn absent(store: &RemoteStore, key: &BlobKey) -> Self {
        Self { store: store.clone(), key: key.clone(), record: Record::default(), version: None }
    }

    pub(super) async fn load(store: &RemoteStore, key: &BlobKey) -> Result<Self, BlobError> {
        let action = "read a record";
        let found = match store.bucket().get(&store.record_path(key)).await {
            Err(object_store::Error::NotFound { .. }) => return Ok(Self::absent(store, key)),
            found => found.doing(action)?,
        };
        let damaged = |why: &str| BlobError::Unavailable { action, source: why.into() };
        if found.meta.size > RECORD_BYTES {
            return Err(damaged("the record is too large to be one"));
        }
        let version =
            Some(UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() });
        let bytes = found.bytes().await.doing(action)?;
        let record = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        Ok(Self { store: store.clone(), key: key.clone(), record, version })
    }

    pub(super) fn store(&self) -> &RemoteStore {
        &self.store
    }

    pub(super) fn key(&self) -> &BlobKey {
        &self.key
    }

    /// Writes `record` unless another process has changed the stored one.
    pub(super) async fn replace(&mut self, record: Record) -> Result<(), Lost> {
        let path = self.store.record_path(&self.key);
        let bytes = serde_json::to_vec(&record).map_err(|error| {
            Lost::Failed(BlobError::Unavailable { action: "write a record", source: error.into() })
        })?;
        for attempt in 1.. {
            let mode = self.version.clone().map_or(PutMode::Create, PutMode::Update);
            let put = self.store.bucket().put_opts(&path, bytes.clone().into(), mode.into()).await;
            let error = match put {
                Ok(put) => {
                    (self.record, self.version) = (record, Some(put.into()));
                    return Ok(());
                }
                Err(error) => error,
            };
            // The answer alone proves nothing: an earlier try may have succeeded and lost its answer. No two uploads
            // write the same record, so the stored record decides.
            let found = Self::load(&self.store, &self.key).await.map_err(Lost::Failed)?;
            if found.record == record && found.version.is_some() {
                *self = found;
                return Ok(());
            }
            if found.record != self.record {
                return Err(Lost::To(Box::new(found)));
            }
            if attempt == TRIES {
                return Err(Lost::Failed(BlobError::Unavailable {
                    action: "write a record",
                    source: error.into(),
                }));
            }
            self.version = found.version;
            sleep(RETRY_DELAY * attempt).await;
        }
        Ok(())
    }
}
