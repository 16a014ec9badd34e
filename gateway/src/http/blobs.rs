//! Problems reported when files cannot be stored or read.

use std::error::Error;

use signalbox_blob_store::BlobError;

use crate::http::problem::{DISK_FULL, Problem};

/// A fault of the place where files are, which no request can help.
pub(crate) fn unusable(error: &BlobError) -> Problem {
    match error {
        BlobError::DiskFull { .. } => {
            tracing::error!(%error, "the blob store is full");
            Problem::unavailable(DISK_FULL)
        }
        BlobError::Unavailable { source, .. } => {
            tracing::error!(%error, cause = source, "the blob store cannot be used");
            Problem::unavailable("the storage of files cannot be reached: try again later")
        }
        _ => match error.source() {
            Some(cause) => Problem::internal(&format_args!("{error}: {cause}")),
            None => Problem::internal(error),
        },
    }
}
