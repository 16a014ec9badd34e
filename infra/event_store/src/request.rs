//! Requests to append, and their answers.

use serde_json::Value;
use signalbox_domain::kernel::{Claim, ClaimOp};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Where an append ended up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendOutcome {
    /// Version of the aggregate after the command.
    pub version: i64,
    /// Position of the command's last event.
    pub position: i64,
    /// Whether the command had been carried out before.
    pub duplicate: bool,
}

/// Why nothing was appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// Another command changed the aggregate first.
    #[error("the aggregate was changed by another command")]
    Conflict,
    /// A claim of an event does not hold.
    #[error("the claim {op:?} on {kind} does not hold")]
    Claim {
        op: ClaimOp,
        /// Name space of the key.
        kind: String,
    },
    /// The database refuses a value of the events or claims; nothing was appended, and a repetition is refused too.
    #[error("the database refuses the events: {0}")]
    Refused(String),
    /// The database's disk is full; nothing was appended.
    #[error("the database's disk is full")]
    DiskFull,
    /// The database did not answer as expected; the append may or may not have happened.
    #[error("the event log cannot be written: {0}")]
    Unavailable(String),
}

/// One event to append.
pub(crate) struct NewEvent {
    pub(crate) event_type: String,
    pub(crate) event_version: String,
    pub(crate) payload: Value,
}

/// The events of one command.
pub(crate) struct Append {
    pub(crate) command_id: Uuid,
    pub(crate) aggregate_type: &'static str,
    pub(crate) aggregate_id: Uuid,
    pub(crate) expected: i64,
    pub(crate) metadata: Value,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) reply: oneshot::Sender<Result<AppendOutcome, AppendError>>,
}
