//! The messages of the agent protocol, see `docs/agent-protocol.md`.

use crate::digest::Sha256Hex;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use std::{fmt, str::FromStr, time::Duration};

/// The extensions of the protocol that this agent speaks.
pub const CAPABILITIES: [&str; 4] = ["ack", "tree", "checksum", "resume"];

/// A transfer's number, on the wire a decimal string. It becomes part of file names, so nothing else is let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransferId(pub u64);

impl FromStr for TransferId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| digits).map(Self).ok_or_else(|| "not a transfer id".to_owned())
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl Serialize for TransferId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TransferId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Which way the bytes go, seen from this agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    Upload,
    Download,
}

impl fmt::Display for Direction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Upload => "upload",
            Self::Download => "download",
        })
    }
}

/// One message, in either direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Envelope {
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default)]
    pub data: Value,
    /// Mailbox number, only on WebSocket and only from the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<i64>,
}

impl Envelope {
    /// A message of ours.
    pub fn new(kind: &str, data: Value) -> Self {
        Self { kind: kind.to_owned(), data, id: None }
    }

    /// The sign of life.
    pub fn heartbeat() -> Self {
        Self::new("heartbeat", json!({ "timestamp": crate::clock::now_rfc3339() }))
    }

    /// Takes charge of one mailbox message.
    pub fn ack(id: i64) -> Self {
        Self::new("ack", json!({ "message_ids": [id] }))
    }
}

/// One item of a long poll.
#[derive(Debug, Deserialize)]
pub struct PollItem {
    pub id: i64,
    pub message: Envelope,
}

/// The content of a `transfer_request`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TransferRequest {
    pub id: TransferId,
    #[serde(rename = "transfer_type")]
    pub direction: Direction,
    #[serde(default)]
    pub source_path: String,
    #[serde(default)]
    pub destination_path: String,
    #[serde(default)]
    pub attempt: Option<u32>,
    #[serde(default)]
    pub tree: Option<bool>,
    #[serde(default)]
    pub filename: Option<String>,
    #[serde(default)]
    pub size: Option<u64>,
    #[serde(default)]
    pub sha256: Option<Sha256Hex>,
    #[serde(default)]
    pub files: Option<u64>,
}

impl TransferRequest {
    /// Whether a whole folder moves.
    pub fn is_tree(&self) -> bool {
        self.tree.unwrap_or(false)
    }

    /// Whether an earlier attempt may have left something to continue from.
    pub fn is_repeated(&self) -> bool {
        self.attempt.is_some_and(|attempt| attempt > 1)
    }
}

/// A message of the gateway, understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    Transfer(Box<TransferRequest>),
    Cancel(TransferId),
    Test(Value),
    /// Nothing for this agent: an unknown type, or data that breaks the protocol.
    Ignored(String),
}

#[derive(Deserialize)]
struct TransferData {
    transfer: TransferRequest,
}

#[derive(Deserialize)]
struct CancelData {
    transfer_id: TransferId,
}

impl From<Envelope> for Command {
    fn from(envelope: Envelope) -> Self {
        let Envelope { kind, data, .. } = envelope;
        let parsed = match kind.as_str() {
            "transfer_request" => serde_json::from_value::<TransferData>(data)
                .map(|data| Self::Transfer(Box::new(data.transfer))),
            "cancel_transfer" => {
                serde_json::from_value::<CancelData>(data).map(|data| Self::Cancel(data.transfer_id))
            }
            "connection_test" => Ok(Self::Test(data)),
            _ => Ok(Self::Ignored(format!("unknown type '{kind}'"))),
        };
        parsed.unwrap_or_else(|error| Self::Ignored(format!("{kind} cannot be read: {error}")))
    }
}

/// The outcome of an attempt, as reported to the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub id: TransferId,
    pub direction: Direction,
    pub attempt: Option<u32>,
    pub outcome: Outcome,
}

/// The two ends that are reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Complete { duration: Duration, sha256: Sha256Hex, files: u64, bytes: u64 },
    Failed { error: String, retryable: bool },
}

impl Report {
    /// The message on the wire. `transfer_type` exceeds the protocol; it distinguishes the two legs of a transfer
    /// whose source and destination are the same agent.
    pub fn envelope(&self) -> Envelope {
        let (kind, mut data) = match &self.outcome {
            Outcome::Complete { duration, sha256, files, bytes } => (
                "transfer_complete",
                json!({ "duration": duration.as_millis() as u64, "sha256": sha256, "files": files, "bytes": bytes }),
            ),
            Outcome::Failed { error, retryable } => {
                ("transfer_error", json!({ "error": error, "retryable": retryable }))
            }
        };
        data["transfer_id"] = json!(self.id);
        data["transfer_type"] = json!(self.direction);
        if let Some(attempt) = self.attempt {
            data["attempt"] = json!(attempt);
        }
        Envelope::new(kind, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(text: &str) -> Command {
        Command::from(serde_json::from_str::<Envelope>(text).unwrap())
    }

    #[test]
    fn a_request_without_extensions_is_understood() {
        let text = r#"{"type":"transfer_request","data":{"transfer":{"id":"12","job_id":"","source_path":"/a",
            "destination_path":"/b","compressed":false,"chunk_size":8,"transfer_type":"download"}}}"#;
        let Command::Transfer(request) = command(text) else { panic!("not a transfer") };
        assert_eq!((request.id, request.attempt, request.is_tree()), (TransferId(12), None, false));
    }

    #[test]
    fn ids_that_are_not_plain_numbers_are_ignored() {
        for id in ["", "+1", "-1", "../1", "1e3", "99999999999999999999999"] {
            let text = format!(r#"{{"type":"cancel_transfer","data":{{"transfer_id":"{id}"}}}}"#);
            assert!(matches!(command(&text), Command::Ignored(_)), "{id}");
        }
    }

    #[test]
    fn an_unknown_type_and_missing_data_are_ignored() {
        assert!(matches!(command(r#"{"type":"later"}"#), Command::Ignored(_)));
        assert!(matches!(command(r#"{"type":"transfer_request"}"#), Command::Ignored(_)));
    }
}
