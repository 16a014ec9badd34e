//! Files in a bucket of an object storage, which any number of gateways share.
//!
//! A file is a *record* and *segments* (`<transfer>/<file>/record`, `<transfer>/<file>/<writer>.<number>`). The
//! record, a small JSON object, lists the segments of the complete file, and those of an upload in progress:
//!
//! * Every change is one conditional write of the record: made only if the record is still what the writer has read
//!   (`If-Match`), or is not there (`If-None-Match`). So an upload takes over by writing its name into the record; the
//!   older one fails at its next segment, and cannot finish. A reader sees the old file or the new one.
//! * A segment has the name of the upload that wrote it, its *writer*, and is never rewritten. The segments of
//!   uploads cannot mix, and segments named by a record do not change.
//! * The process that removes segments from a record deletes them. A segment that the record does not name belongs to
//!   its writer as long as the record names that writer as the current one; otherwise it is garbage, and any process
//!   may delete it.
//!
//! For correctness: the conditional writes, and that a record names a writer before the first of its segments exists.
//! For economy: the read-ahead, the size of segments. A gateway that is killed leaves at most one segment that no
//! record names; it is deleted with its transfer.

mod bucket;
mod check;
mod delete;
mod read;
mod record;
mod slot;
mod upload;

use std::{collections::HashSet, path::PathBuf, sync::Arc};

use object_store::{ObjectStore, ObjectStoreExt, PutPayload, path::Path};
use signalbox_config::Storage;
use signalbox_domain::kernel::Sha256Hex;
use tokio::sync::Mutex;
use uuid::Uuid;

pub use check::CheckError;

use self::{
    record::{Run, Segment, Whole, segments},
    slot::Slot,
};
use crate::{BlobError, BlobKey, Progress};

const MIB: usize = 1024 * 1024;
const RECORD: &str = "record";

/// The files of all transfers under one prefix of a bucket. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct RemoteStore(Arc<Root>);

#[derive(Debug)]
struct Root {
    bucket: Box<dyn ObjectStore>,
    path: Path,
    segment_bytes: usize,
    /// For copies on the local disk.
    scratch: PathBuf,
    /// Marks of deletions that the last sweep has seen.
    marks: Mutex<HashSet<Uuid>>,
}

impl RemoteStore {
    pub(crate) fn open(config: &Storage, name: &str) -> Result<Self, BlobError> {
        let (bucket, prefix) =
            bucket::open(config).map_err(|error| BlobError::Misconfigured { source: error.into() })?;
        Ok(Self(Arc::new(Root {
            bucket,
            path: prefix.join(name),
            segment_bytes: config.segment_mb as usize * MIB,
            scratch: config.folder.clone(),
            marks: Mutex::default(),
        })))
    }

    pub(crate) async fn received(&self, key: &BlobKey) -> Result<Progress, BlobError> {
        let record = Slot::load(self, key).await?.record;
        Ok(match (record.part, record.whole) {
            (Some(part), _) => Progress::Part(part.size()),
            (None, Some(whole)) => Progress::Complete { size: whole.size() },
            (None, None) => Progress::Nothing,
        })
    }

    /// As it was hashed on the way in.
    pub(crate) async fn digest(&self, key: &BlobKey) -> Result<Sha256Hex, BlobError> {
        self.whole(key).await.map(|whole| whole.sha256)
    }

    async fn whole(&self, key: &BlobKey) -> Result<Whole, BlobError> {
        Slot::load(self, key).await?.record.whole.ok_or(BlobError::NotFound)
    }

    pub(crate) async fn list_transfers(&self) -> Result<Vec<Uuid>, BlobError> {
        let listed = self.bucket().list_with_delimiter(Some(&self.0.path)).await;
        let listed = listed.doing("list transfers")?;
        let names = listed.common_prefixes.iter().filter_map(|prefix| prefix.filename());
        Ok(names.filter_map(|name| Uuid::try_parse(name).ok()).collect())
    }

    fn bucket(&self) -> &dyn ObjectStore {
        &*self.0.bucket
    }

    fn transfer_path(&self, transfer: Uuid) -> Path {
        self.0.path.clone().join(transfer.hyphenated().to_string())
    }

    fn file_path(&self, key: &BlobKey) -> Path {
        self.transfer_path(key.transfer()).join(key.file_name())
    }

    fn record_path(&self, key: &BlobKey) -> Path {
        self.file_path(key).join(RECORD)
    }

    fn segment_path(&self, key: &BlobKey, segment: &Segment) -> Path {
        self.file_path(key).join(segment.name())
    }

    async fn put(&self, path: &Path, payload: impl Into<PutPayload>) -> Result<(), object_store::Error> {
        self.bucket().put(path, payload.into()).await.map(|_| ())
    }

    /// Deletes the segments of `runs`, which no record names any more. Segments that cannot be deleted now are
    /// deleted with their transfer.
    async fn discard(&self, key: &BlobKey, runs: &[Run]) {
        let paths = segments(runs).map(|segment| self.segment_path(key, &segment)).collect();
        if let Err(error) = self.delete(paths).await {
            tracing::warn!(%error, transfer = %key.transfer(), "unused segments were not deleted");
        }
    }
}

/// Adds the attempted operation to errors of the bucket.
trait BucketContext<T> {
    fn doing(self, action: &'static str) -> Result<T, BlobError>;
}

impl<T> BucketContext<T> for Result<T, object_store::Error> {
    fn doing(self, action: &'static str) -> Result<T, BlobError> {
        self.map_err(|error| BlobError::Unavailable { action, source: error.into() })
    }
}
