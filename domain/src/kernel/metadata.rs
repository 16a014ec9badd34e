use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Actor;

/// Who and what caused an event; travels with the command and is stored beside the event's payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The command that produced the event; equal for all events of one command.
    pub command_id: Uuid,
    /// Who sent it.
    pub actor: Actor,
    /// The position of the event that led to the command, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation: Option<i64>,
    /// Equal for everything that one cause led to; the request id of the first request. Left empty by senders that do not know
    /// it: then it is that of the cause, which is the aggregate's newest event where its life is one story.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub correlation: String,
    /// W3C trace context of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The version of the aggregate that the command brings back, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_version: Option<i64>,
}

/// Where a command ended up. A command that changed nothing has neither version nor position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandOutcome {
    /// Version of the aggregate after the command.
    pub version: Option<i64>,
    /// Position of the command's last event.
    pub position: Option<i64>,
    /// Whether it had been carried out before, and this is the first outcome again.
    #[serde(default)]
    pub repeated: bool,
}
