use signalbox_blob_store::BlobError;
use signalbox_domain::kernel::Rejection;
use signalbox_event_store::DecodeError;
use signalbox_messaging::BusError;
use signalbox_projections::{automation::deliveries::BodyError, monitoring::series::SeriesError};
use signalbox_texts::TextError;

/// Why a step did not succeed; the next one tries again.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The read models or the log cannot be read.
    #[error("the database failed: {0}")]
    Database(#[from] sqlx::Error),
    /// A message cannot be sent.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// A command was not taken.
    #[error("a command was not taken: {0}")]
    Rejected(#[from] Rejection),
    /// An event cannot be read by this program.
    #[error(transparent)]
    Unreadable(#[from] DecodeError),
    /// What is to be posted cannot be read.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The blob store failed.
    #[error("the blob store failed: {0}")]
    Blob(#[from] BlobError),
    /// A text cannot be written or read.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Disk(#[from] std::io::Error),
    /// Datapoints cannot be read.
    #[error(transparent)]
    Series(SeriesError),
}
