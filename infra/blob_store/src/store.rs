use signalbox_boxed::boxed;
use std::{fs::File, io, ops::Range, path::PathBuf};

use bytes::Bytes;
use futures::{Stream, future::Either};
use signalbox_config::Storage;
use signalbox_domain::kernel::Sha256Hex;
use uuid::Uuid;

use crate::{
    BlobError, BlobKey, CheckError, Receive, Received, error::BoxError, local::LocalStore, receive::pour,
    remote::RemoteStore,
};

/// The files of all transfers, in a folder or in a bucket. Clones share it.
#[derive(Debug, Clone)]
pub struct BlobStore(Place);

#[derive(Debug, Clone)]
enum Place {
    Local(LocalStore),
    Remote(RemoteStore),
}

/// How much of a file is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All of it, durable.
    Complete {
        /// Its size in bytes.
        size: u64,
    },
    /// So many bytes of an upload that is in progress or broke off, even when an older upload of the file is complete.
    Part(u64),
    /// Nothing.
    Nothing,
}

impl BlobStore {
    /// The store in the folder `root`, which is made if need be. Finishes deletions that a crash interrupted.
    ///
    /// # Errors
    /// [`BlobError::Io`] when the folder cannot be made, read or locked.
    pub fn open(root: PathBuf) -> Result<Self, BlobError> {
        LocalStore::open(root).map(|store| Self(Place::Local(store)))
    }

    /// The store called `name` where `config` has it: under its bucket, else in its folder. A bucket is not asked for
    /// anything yet: see [`Self::check`].
    ///
    /// # Errors
    /// [`BlobError::Io`] when the folder cannot be used, [`BlobError::Misconfigured`] when the bucket's settings
    /// contradict each other.
    pub fn configured(config: &Storage, name: &str) -> Result<Self, BlobError> {
        match config.url.is_empty() {
            true => Self::open(config.folder.join(name)),
            false => RemoteStore::open(config, name).map(|store| Self(Place::Remote(store))),
        }
    }

    /// Stores the bytes of `body` as `key`, all of them or from an offset on.
    ///
    /// `progress` receives, for every chunk, the number of bytes received so far; it must be quick. Of two uploads of
    /// the same file the newer one wins, and the older one ends with [`BlobError::Superseded`]: at its next write, at
    /// the latest on completion. An upload in progress when its transfer is deleted ends alike and leaves nothing.
    /// One that *starts* after the deletion creates the transfer's folder again, so check the transfer's state
    /// before, and sweep [`BlobStore::list_transfers`] from time to time.
    ///
    /// When the future is dropped, what was written so far stays as a part that can be continued.
    ///
    /// # Errors
    /// All of [`BlobError`] but `NotFound`; each variant states which bytes are kept.
    pub async fn receive<E: Into<BoxError>>(
        &self,
        key: &BlobKey,
        request: Receive,
        body: impl Stream<Item = Result<Bytes, E>>,
        progress: impl Fn(u64),
    ) -> Result<Received, BlobError> {
        request.check()?;
        match &self.0 {
            Place::Local(store) => {
                pour(store.begin(key, request.start).await?, request, body, progress).await
            }
            Place::Remote(store) => {
                pour(store.begin(key, request.start).await?, request, body, progress).await
            }
        }
    }

    /// How much of `key` is there, complete or for a later upload to continue.
    ///
    /// # Errors
    /// [`BlobError::Io`] or [`BlobError::Unavailable`] when that cannot be found out.
    #[boxed]
    pub async fn received(&self, key: &BlobKey) -> Result<Progress, BlobError> {
        match &self.0 {
            Place::Local(store) => store.received(key).await,
            Place::Remote(store) => store.received(key).await,
        }
    }

    /// The digest of the complete file `key`.
    ///
    /// Digests are kept in the event log. This is for the file that was completed just before a crash, so that its
    /// digest never reached the log.
    ///
    /// # Errors
    /// [`BlobError::NotFound`] when there is no complete file.
    #[boxed]
    pub async fn digest(&self, key: &BlobKey) -> Result<Sha256Hex, BlobError> {
        match &self.0 {
            Place::Local(store) => store.digest(key).await,
            Place::Remote(store) => store.digest(key).await,
        }
    }

    /// The whole size of the file `key`, and its bytes or those of `range`, cut to the file's end.
    ///
    /// The bytes are those of the file that was there at the call, never of another one. Where it is replaced or deleted
    /// meanwhile, a disk gives them to their end, and a bucket may end with an error.
    ///
    /// # Errors
    /// [`BlobError::NotFound`] when there is no complete file.
    pub async fn read(
        &self,
        key: &BlobKey,
        range: Option<Range<u64>>,
    ) -> Result<(u64, impl Stream<Item = io::Result<Bytes>> + Send + 'static), BlobError> {
        Ok(match &self.0 {
            Place::Local(store) => {
                let (size, bytes) = store.read(key, range).await?;
                (size, Either::Left(bytes))
            }
            Place::Remote(store) => {
                let (size, bytes) = store.read(key, range).await?;
                (size, Either::Right(bytes))
            }
        })
    }

    /// The whole size of the file `key`, and the file itself, for what has to read it more than once. Out of a bucket it
    /// is a copy without a name, whose digest was checked.
    ///
    /// # Errors
    /// [`BlobError::NotFound`] when there is no complete file.
    #[boxed]
    pub async fn open_file(&self, key: &BlobKey) -> Result<(u64, File), BlobError> {
        match &self.0 {
            Place::Local(store) => store.open_file(key).await,
            Place::Remote(store) => store.open_file(key).await,
        }
    }

    /// Removes all files of `transfer`. Does nothing when there are none.
    ///
    /// From its first step on nothing of the transfer can be read or continued. Reads in progress behave as
    /// [`Self::read`] says; an upload in progress ends with [`BlobError::Superseded`], and the bytes it wrote are
    /// deleted. Remains of a crash are removed by [`Self::sweep`].
    ///
    /// # Errors
    /// [`BlobError::Io`] or [`BlobError::Unavailable`] when it cannot be done: do it again.
    #[boxed]
    pub async fn delete_transfer(&self, transfer: Uuid) -> Result<(), BlobError> {
        match &self.0 {
            Place::Local(store) => store.delete_transfer(transfer).await,
            Place::Remote(store) => store.delete_transfer(transfer).await,
        }
    }

    /// Removes what crashes have left of deleted transfers. To be done every few minutes; it costs little.
    ///
    /// # Errors
    /// [`BlobError::Io`] or [`BlobError::Unavailable`] when it cannot be done: do it again.
    #[boxed]
    pub async fn sweep(&self) -> Result<(), BlobError> {
        match &self.0 {
            Place::Local(store) => store.sweep().await,
            Place::Remote(store) => store.sweep().await,
        }
    }

    /// The transfers that have files here, so that those which ended long ago can be deleted. Some servers of buckets name a
    /// transfer for some time after its last file has gone.
    ///
    /// # Errors
    /// [`BlobError::Io`] or [`BlobError::Unavailable`] when they cannot be listed.
    #[boxed]
    pub async fn list_transfers(&self) -> Result<Vec<Uuid>, BlobError> {
        match &self.0 {
            Place::Local(store) => store.list_transfers().await,
            Place::Remote(store) => store.list_transfers().await,
        }
    }

    /// Tries on a bucket all that a store does with it; a folder was tried when it was opened. Leaves nothing behind.
    ///
    /// # Errors
    /// [`CheckError`] names the operation that fails.
    #[boxed]
    pub async fn check(&self) -> Result<(), CheckError> {
        match &self.0 {
            Place::Local(_) => Ok(()),
            Place::Remote(store) => store.check().await,
        }
    }
}
