use std::io;

use signalbox_domain::kernel::Sha256Hex;

/// Where the bytes of a request come from may fail in any way.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why bytes were not stored or not read.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// The file is, or would become, larger than allowed. Nothing of this upload is kept.
    #[error("larger than the limit of {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// The bytes are not the announced ones. Nothing of this upload is kept.
    #[error("the SHA-256 is {actual}, but {expected} was announced")]
    ChecksumMismatch {
        /// The announced digest.
        expected: Sha256Hex,
        /// The digest of the received bytes.
        actual: Sha256Hex,
    },
    /// The body was longer than announced. Nothing of an upload from the first byte on is kept; of a continued one, what was announced is.
    #[error("more bytes than the announced {total}")]
    Overrun {
        /// Where the file, or this piece of it, was announced to end.
        total: u64,
    },
    /// The upload does not continue where the part ends. The part is untouched.
    #[error("{present} bytes are there")]
    WrongOffset {
        /// Where an upload may continue.
        present: u64,
    },
    /// The body broke off or failed, or the client disconnected. The received bytes are kept, to be continued.
    #[error("the body ended after {received} bytes of the file")]
    Interrupted {
        /// How much of the file is there.
        received: u64,
        /// Why; `None` when the body just ended before the announced size.
        source: Option<BoxError>,
    },
    /// The part is no longer this upload's: another upload of the same file took over, or the transfer was deleted.
    #[error("another upload of the file took over, or the transfer was deleted")]
    Superseded,
    /// No such file.
    #[error("no such file")]
    NotFound,
    /// The disk, or the quota, is full. Nothing of this upload is kept, so that it does not keep the disk full; an upload that it
    /// continued ends where it did.
    #[error("the disk is full")]
    DiskFull { source: io::Error },
    /// The bucket cannot be reached or refuses. Its content stays; an upload can be continued.
    #[error("cannot {action} in the bucket")]
    Unavailable {
        /// The operation that failed.
        action: &'static str,
        source: BoxError,
    },
    /// The settings of the bucket contradict each other.
    #[error("the bucket cannot be used as it is configured")]
    Misconfigured {
        /// Why.
        source: BoxError,
    },
    /// Anything else that the disk refused.
    #[error("cannot {action}")]
    Io {
        /// The operation that failed.
        action: &'static str,
        source: io::Error,
    },
}

impl BlobError {
    pub(crate) fn io(action: &'static str, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { source },
            _ => Self::Io { action, source },
        }
    }

    /// Whether the part must go with the upload.
    pub(crate) fn keeps_nothing(&self) -> bool {
        matches!(
            self,
            Self::TooLarge { .. }
                | Self::ChecksumMismatch { .. }
                | Self::Overrun { .. }
                | Self::DiskFull { .. }
        )
    }
}

/// Adds the attempted operation to errors of the disk.
pub(crate) trait IoContext<T> {
    fn during(self, action: &'static str) -> Result<T, BlobError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn during(self, action: &'static str) -> Result<T, BlobError> {
        self.map_err(|error| BlobError::io(action, error.into()))
    }
}

/// Runs blocking disk work off the async threads.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BlobError> + Send + 'static,
) -> Result<T, BlobError> {
    joined(tokio::task::spawn_blocking(work).await)
}

/// The result of disk work that ran elsewhere.
pub(crate) fn joined<T>(
    result: Result<Result<T, BlobError>, tokio::task::JoinError>,
) -> Result<T, BlobError> {
    result.map_err(|error| BlobError::io("finish disk work", io::Error::other(error)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_has_its_own_error_and_keeps_nothing() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let error = BlobError::io("write a part", kind.into());
            assert!(matches!(error, BlobError::DiskFull { .. }) && error.keeps_nothing());
        }
        let error = BlobError::io("write a part", io::ErrorKind::PermissionDenied.into());
        assert!(matches!(error, BlobError::Io { .. }) && !error.keeps_nothing());
    }
}
