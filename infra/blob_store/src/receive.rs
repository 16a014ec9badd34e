use std::pin::pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use sha2::{Digest, Sha256};
use signalbox_domain::kernel::Sha256Hex;

use crate::{
    BlobError, BlobKey, BlobStore,
    disk::Disk,
    error::{BoxError, off_thread},
    part::Part,
};

/// Where an upload starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// At the first byte; an older part of the file goes away.
    Anew,
    /// Where an interrupted upload ended.
    At {
        /// Must be how much is there.
        offset: u64,
        /// Size of the whole file.
        total: u64,
    },
}

/// What is known of an upload before its body.
#[derive(Debug, Clone)]
pub struct Receive {
    /// Where it starts.
    pub start: Start,
    /// Largest whole file that is taken, in bytes.
    pub limit: u64,
    /// The announced digest of the whole file.
    pub expected_sha256: Option<Sha256Hex>,
    /// Length of this body (`Content-Length`), where known.
    pub total: Option<u64>,
}

/// What became of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// The file is there, checked and durable.
    Complete {
        /// Its size in bytes.
        size: u64,
        /// Its digest.
        sha256: Sha256Hex,
    },
    /// The body of a continued upload ended as announced, and the file is not complete yet.
    Partial {
        /// How much of the file is there.
        size: u64,
    },
}

impl Receive {
    fn offset(&self) -> u64 {
        match self.start {
            Start::Anew => 0,
            Start::At { offset, .. } => offset,
        }
    }

    /// Size of the whole file, where known.
    fn file_size(&self) -> Option<u64> {
        match self.start {
            Start::Anew => self.total,
            Start::At { total, .. } => Some(total),
        }
    }

    /// Where this body ends in the file, where known.
    fn end(&self) -> Option<u64> {
        self.total.map(|length| self.offset().saturating_add(length))
    }

    /// Refuses what cannot be taken, before a byte of it is read.
    fn check(&self) -> Result<(), BlobError> {
        let announced = self.file_size().max(self.end()).unwrap_or(0);
        self.check_size(announced)
    }

    /// Refuses a file that has grown to `size`.
    fn check_size(&self, size: u64) -> Result<(), BlobError> {
        if size > self.limit {
            return Err(BlobError::TooLarge { limit: self.limit });
        }
        match self.file_size() {
            Some(total) if size > total => Err(BlobError::Overrun { total }),
            _ => Ok(()),
        }
    }
}

impl BlobStore {
    /// Stores the bytes of `body` as `key`, all of them or from an offset on.
    ///
    /// `progress` is told, for every chunk, how many bytes of the file have come; it must be quick.
    /// Of two uploads of the same file the newer one wins, and the older one ends with [`BlobError::Superseded`]:
    /// at its next write in both cases, at the latest when it would complete. An upload that is under way when
    /// its transfer is deleted ends alike and leaves nothing; one that *begins* after the deletion makes the transfer's
    /// folder again, so check the transfer's state before, and sweep [`BlobStore::list_transfers`] from time to time.
    ///
    /// When the future is dropped, what was written so far stays as a part that can be continued.
    ///
    /// # Errors
    /// All of [`BlobError`] but `NotFound`; each variant says what is kept.
    pub async fn receive<E: Into<BoxError>>(
        &self,
        key: &BlobKey,
        request: Receive,
        body: impl Stream<Item = Result<Bytes, E>>,
        progress: impl Fn(u64),
    ) -> Result<Received, BlobError> {
        request.check()?;
        let (store, key) = (self.clone(), key.clone());
        let start = request.start;
        let (part, hasher) = off_thread(move || match start {
            Start::Anew => Ok((Part::create(store, key)?, Sha256::new())),
            Start::At { offset, .. } => Part::resume(store, key, offset),
        })
        .await?;
        let mut came = part.size();
        let mut disk = Disk::new(part, hasher);
        let mut body = pin!(body);
        while let Some(chunk) = body.next().await {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => return Err(interrupted(disk, error.into()).await),
            };
            came += chunk.len() as u64;
            if let Err(error) = request.check_size(came) {
                return Err(disk.refuse(error).await);
            }
            progress(came);
            disk = disk.push(&chunk).await?;
        }
        let (part, sha256) = disk.settle().await?;
        conclude(part, sha256, request).await
    }
}

/// Keeps what came before the body failed.
async fn interrupted(disk: Disk, source: BoxError) -> BlobError {
    match disk.settle().await {
        Ok((part, _)) => BlobError::Interrupted { received: part.size(), source: Some(source) },
        Err(error) => error,
    }
}

/// Decides what a body that ended properly has brought.
async fn conclude(part: Part, sha256: Sha256Hex, request: Receive) -> Result<Received, BlobError> {
    let size = part.size();
    if request.end().is_some_and(|end| size < end) {
        return Err(BlobError::Interrupted { received: size, source: None });
    }
    if request.file_size().is_some_and(|total| size < total) {
        return Ok(Received::Partial { size });
    }
    off_thread(move || match request.expected_sha256 {
        Some(expected) if expected != sha256 => {
            Err(part.refuse(BlobError::ChecksumMismatch { expected, actual: sha256 }))
        }
        _ => part.finish().map(|()| Received::Complete { size, sha256 }),
    })
    .await
}
