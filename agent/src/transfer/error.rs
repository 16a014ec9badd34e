//! Why an attempt ended without success, in sentences for people.

use super::Reason;
use crate::{confine::ConfineError, gateway::GatewayError};
use std::io;

/// The end of an attempt, other than success.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error("The transfer was stopped.")]
    Interrupted(Reason),
    #[error(transparent)]
    Path(#[from] ConfineError),
    #[error("{0}.")]
    Gateway(#[from] GatewayError),
    #[error("No byte moved for {0} seconds.")]
    Stalled(u64),
    #[error("'{0}' changed while it was read.")]
    SourceChanged(String),
    #[error("'{0}' was removed while its tree was read.")]
    Removed(String),
    #[error("'{0}' cannot be read: {1}.")]
    Read(String, io::Error),
    #[error("'{0}' cannot be written: {1}.")]
    Write(String, io::Error),
    #[error("The disk is full: '{0}' cannot be written.")]
    DiskFull(String),
    #[error("'{0}' arrived with other bytes than were sent: the SHA-256 differs.")]
    Mismatch(String),
    #[error("The gateway kept other bytes of '{0}' than were sent: the SHA-256 differs.")]
    StoredMismatch(String),
    #[error("The connection ended before '{0}' was complete.")]
    Short(String),
    #[error("A name below '{0}' is not valid UTF-8: '{1}'.")]
    NonUtf8(String, String),
    #[error("The name that starts with '{0}' has more than 4,096 bytes, or a part of more than 255.")]
    NameTooLong(String),
    #[error("'{0}' holds more than {1} entries.")]
    TooManyEntries(String, usize),
    #[error("The list of files is not consistent: {0}.")]
    BadManifest(&'static str),
    #[error("The request is not complete: {0}.")]
    BadRequest(&'static str),
    #[error("The agent met an internal error.")]
    Internal,
}

impl From<Reason> for TransferError {
    fn from(reason: Reason) -> Self {
        Self::Interrupted(reason)
    }
}

impl TransferError {
    /// A write error; a full disk has its own variant.
    pub fn write(shown: &str, error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull(shown.to_owned()),
            _ => Self::Write(shown.to_owned(), error),
        }
    }

    /// Whether the file may be retried within the attempt.
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Gateway(error) => error.is_passing(),
            Self::Stalled(_) | Self::Short(_) => true,
            _ => false,
        }
    }

    /// Whether another attempt may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Path(ConfineError::Io(..)) => true,
            Self::Path(_) | Self::NonUtf8(..) | Self::NameTooLong(_) => false,
            Self::TooManyEntries(..) | Self::BadRequest(_) => false,
            Self::Gateway(GatewayError::TooLarge(_)) => false,
            _ => true,
        }
    }

    /// Whether the attempt ends without a report: it was stopped, or the agent no longer owns it.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Interrupted(_) | Self::Gateway(GatewayError::Gone(_)))
    }

    /// Whether the temporary files are of no further use.
    pub fn drops_parts(&self) -> bool {
        match self {
            Self::Interrupted(reason) => *reason == Reason::Cancelled,
            Self::Gateway(GatewayError::Gone(_)) | Self::DiskFull(_) | Self::Mismatch(_) => true,
            other => !other.is_retryable(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_retryable_without_the_partial_file() {
        let error = TransferError::write("f", io::ErrorKind::StorageFull.into());
        assert_eq!(error.to_string(), "The disk is full: 'f' cannot be written.");
        assert!(error.is_retryable() && error.drops_parts() && !error.is_passing());
    }

    #[test]
    fn faults_of_the_request_end_the_transfer_and_faults_of_the_machine_do_not() {
        let path = |error| TransferError::Path(error);
        assert!(!path(ConfineError::Outside("x".into())).is_retryable());
        assert!(!path(ConfineError::Missing("x".into())).is_retryable());
        assert!(!path(ConfineError::IsDirectory("x".into())).is_retryable());
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        assert!(path(ConfineError::Io("x".into(), denied())).is_retryable());
        assert!(TransferError::write("x", denied()).is_retryable());
        assert!(!TransferError::write("x", denied()).drops_parts());
    }
}
