use signalbox_blob_store::BlobError;
use signalbox_database::is_refusal;
use signalbox_domain::kernel::{ErrorKind, Rejection};
use signalbox_event_store::{ChainError, DecodeError};
use signalbox_messaging::BusError;
use signalbox_projections::{
    UnknownWord, automation::deliveries::BodyError, monitoring::series::SeriesError,
};
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
    /// A row depends on a word of a newer version.
    #[error(transparent)]
    Word(#[from] UnknownWord),
    /// The event to publish cannot be read.
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
    /// The hash chain cannot be extended.
    #[error(transparent)]
    Chain(ChainError),
    /// A message to a contact cannot be written.
    #[error("a message to a contact cannot be written: {0}")]
    Message(serde_json::Error),
    /// An attempt was hindered; the next one waits longer.
    #[error(transparent)]
    Hindered(Box<WorkerError>),
    /// The step panicked.
    #[error("the step panicked: {0}")]
    Panic(String),
    /// An event is larger than a message may be.
    #[error("the event has {size} bytes, and a message at most {limit}")]
    TooLarge {
        /// Bytes of the event.
        size: usize,
        /// Bytes of a message.
        limit: usize,
    },
}

impl WorkerError {
    /// Whether a repetition fails too, unlike while database or bus are away.
    pub(crate) fn is_lasting(&self) -> bool {
        self.is_of_item() || matches!(self, Self::Chain(ChainError::Gap { .. }))
    }

    /// Whether a newer release can do what was not done.
    pub(crate) fn is_of_newer_release(&self) -> bool {
        matches!(self, Self::Rejected(rejection) if rejection.is_newer_history())
    }

    /// Whether the item that the worker was at is the cause, so that others may succeed.
    pub(crate) fn is_of_item(&self) -> bool {
        match self {
            Self::Database(error) => is_refusal(error),
            Self::Body(BodyError::Database(error)) => is_refusal(error),
            Self::Rejected(rejection) => {
                rejection.kind != ErrorKind::Unavailable || self.is_of_newer_release()
            }
            Self::Bus(_) | Self::Chain(_) => false,
            _ => true,
        }
    }
}
