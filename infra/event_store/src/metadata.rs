use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use signalbox_domain::kernel::Actor;
use uuid::Uuid;

/// Who and what caused an event; stored beside its payload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    /// The command that produced the event; equal for all events of one command.
    pub command_id: Uuid,
    /// Who sent it.
    pub actor: Actor,
    /// The position of the event that led to the command, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub causation: Option<i64>,
    /// Equal for everything that one cause led to; the request id of the first request.
    pub correlation: String,
    /// W3C trace context of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

impl Metadata {
    /// As the string map that `cqrs-es` carries.
    pub(crate) fn to_map(&self) -> HashMap<String, String> {
        let mut map = HashMap::from([
            ("command_id".to_owned(), self.command_id.to_string()),
            ("actor".to_owned(), self.actor.to_string()),
            ("correlation".to_owned(), self.correlation.clone()),
        ]);
        if let Some(causation) = self.causation {
            map.insert("causation".to_owned(), causation.to_string());
        }
        if let Some(traceparent) = &self.traceparent {
            map.insert("traceparent".to_owned(), traceparent.clone());
        }
        map
    }
}
