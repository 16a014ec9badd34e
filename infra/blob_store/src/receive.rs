use std::pin::pin;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use signalbox_domain::kernel::Sha256Hex;

use crate::{BlobError, error::BoxError};

/// Where an upload starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Start at the first byte; an older part of the file is deleted.
    Anew,
    /// Where an interrupted upload ended.
    At {
        /// Must be how much is there.
        offset: u64,
        /// Size of the whole file.
        total: u64,
    },
}

/// Properties of an upload that are known before its body.
#[derive(Debug, Clone)]
pub struct Receive {
    /// Where it starts.
    pub start: Start,
    /// Largest whole file that is taken, in bytes.
    pub limit: u64,
    /// The announced digest of the whole file.
    pub expected_sha256: Option<Sha256Hex>,
    /// Length of this body (`Content-Length`), if known.
    pub total: Option<u64>,
}

/// Result of an upload.
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

    /// Size of the whole file, if known.
    fn file_size(&self) -> Option<u64> {
        match self.start {
            Start::Anew => self.total,
            Start::At { total, .. } => Some(total),
        }
    }

    /// End of this body in the file, if known.
    fn end(&self) -> Option<u64> {
        self.total.map(|length| self.offset().saturating_add(length))
    }

    /// Refuses invalid requests before a byte of the body is read.
    pub(crate) fn check(&self) -> Result<(), BlobError> {
        self.check_limit(self.file_size().max(self.end()).unwrap_or(0))?;
        match (self.file_size(), self.end()) {
            (Some(total), Some(end)) if end > total => Err(BlobError::Overrun { total }),
            _ => Ok(()),
        }
    }

    /// Refuses a file that has grown to `size`.
    fn check_size(&self, size: u64) -> Result<(), BlobError> {
        self.check_limit(size)?;
        match self.end().or(self.file_size()) {
            Some(total) if size > total => Err(BlobError::Overrun { total }),
            _ => Ok(()),
        }
    }

    fn check_limit(&self, size: u64) -> Result<(), BlobError> {
        if size > self.limit { Err(BlobError::TooLarge { limit: self.limit }) } else { Ok(()) }
    }
}

/// Where the bytes of an upload go, one piece after the other.
pub(crate) trait Sink: Sized {
    type Kept: Kept;

    /// Adds `bytes`.
    async fn push(self, bytes: &[u8]) -> Result<Self, BlobError>;

    /// Waits until all bytes are written.
    async fn settle(self) -> Result<Self::Kept, BlobError>;

    /// Removes the received bytes, unless another upload owns them by now, and returns the reason.
    async fn refuse(self, reason: BlobError) -> BlobError;
}

/// The bytes of an upload, all of them written.
pub(crate) trait Kept {
    /// Bytes of the file that are there.
    fn size(&self) -> u64;

    /// Of these bytes.
    fn sha256(&self) -> &Sha256Hex;

    /// Leaves it for a later upload to continue; returns how much of it.
    async fn keep(self) -> Result<u64, BlobError>;

    /// Makes it the file.
    async fn finish(self) -> Result<(), BlobError>;

    /// Removes it, unless it is another upload's by now, and returns the reason.
    async fn refuse(self, reason: BlobError) -> BlobError;
}

/// Writes `body` into `sink`, and decides whether its bytes are kept.
pub(crate) async fn pour<S: Sink, E: Into<BoxError>>(
    mut sink: S,
    request: Receive,
    body: impl Stream<Item = Result<Bytes, E>>,
    progress: impl Fn(u64),
) -> Result<Received, BlobError> {
    let mut came = request.offset();
    let mut body = pin!(body);
    while let Some(chunk) = body.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => return Err(interrupted(sink.settle().await?, Some(error.into())).await),
        };
        came += chunk.len() as u64;
        if let Err(error) = request.check_size(came) {
            return Err(match (&error, request.start) {
                (BlobError::Overrun { .. }, Start::At { .. }) => {
                    kept_despite(sink.settle().await?, error).await
                }
                _ => sink.refuse(error).await,
            });
        }
        progress(came);
        sink = sink.push(&chunk).await?;
    }
    conclude(sink.settle().await?, request).await
}

/// Keeps the bytes received before the body failed or ended early.
async fn interrupted(kept: impl Kept, source: Option<BoxError>) -> BlobError {
    match kept.keep().await {
        Ok(received) => BlobError::Interrupted { received, source },
        Err(error) => error,
    }
}

/// Keeps the bytes received before `reason`, which say nothing against them.
async fn kept_despite(kept: impl Kept, reason: BlobError) -> BlobError {
    kept.keep().await.err().unwrap_or(reason)
}

/// Checks the bytes of a complete body.
async fn conclude(kept: impl Kept, request: Receive) -> Result<Received, BlobError> {
    let size = kept.size();
    if request.end().is_some_and(|end| size < end) {
        return Err(interrupted(kept, None).await);
    }
    if request.file_size().is_some_and(|total| size < total) {
        return Ok(Received::Partial { size: kept.keep().await? });
    }
    let sha256 = kept.sha256().clone();
    match request.expected_sha256 {
        Some(expected) if expected != sha256 => {
            Err(kept.refuse(BlobError::ChecksumMismatch { expected, actual: sha256 }).await)
        }
        _ => kept.finish().await.map(|()| Received::Complete { size, sha256 }),
    }
}
