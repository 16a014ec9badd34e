use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Actor;

/// The originator and the cause of an event; travels with the command and is stored beside the event's payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The command that produced the event; equal for all events of one command.
    pub command_id: Uuid,
    pub actor: Actor,
    /// The position of the event that led to the command, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub causation: Option<i64>,
    /// The request id of the first request; shared by all events that one cause led to. Senders that do not know it
    /// leave it empty: then the cause's is used, which is the aggregate's newest event if its stream is one causal
    /// trace.
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
    /// Whether the command had been carried out before, and this is the first outcome again.
    #[serde(default)]
    pub repeated: bool,
}
