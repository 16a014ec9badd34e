mod events;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{AgentTokenCommand, AgentTokenEvent, AgentTokenEventKind};
use super::{
    agent::{AGENT_CLAIM, optional_text, unknown_agent},
    job::AgentRef,
};
use crate::kernel::{Claim, ClaimOp, Decider, Rejection, Sha256Hex, required_text};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;

/// A credential of one agent.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct AgentToken {
    live: bool,
}

/// A new token; the secret itself is never part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAgentToken {
    /// The integer that clients see; drawn by the command handler.
    #[serde(default)]
    pub number: i64,
    /// Display name, 1–255 characters.
    pub name: String,
    pub agent: AgentRef,
    /// Free text.
    pub description: Option<String>,
    /// SHA-256 of the secret.
    pub secret_sha256: Sha256Hex,
    /// When it stops working; `None` for never.
    pub expires_at: Option<DateTime<Utc>>,
}

impl Decider for AgentToken {
    const TYPE: &'static str = "agent_token";
    const CONTEXT: &'static str = "transfer";
    const STATE_VERSION: i32 = 1;
    type Command = AgentTokenCommand;
    type Event = AgentTokenEvent;

    fn decide(&self, command: AgentTokenCommand) -> Result<Vec<AgentTokenEvent>, Rejection> {
        match command {
            AgentTokenCommand::Create(_) if self.live => {
                Err(Rejection::conflict("token_exists", "This token exists already."))
            }
            AgentTokenCommand::Create(new) => {
                let name = required_text("name", &new.name, MAX_NAME)?;
                let description = optional_text("description", new.description)?;
                Ok(vec![AgentTokenEvent::AgentTokenCreated(NewAgentToken { name, description, ..new })])
            }
            AgentTokenCommand::Revoke if self.live => Ok(vec![AgentTokenEvent::AgentTokenRevoked]),
            AgentTokenCommand::Revoke => Err(Rejection::not_found("Token")),
        }
    }

    fn evolve(&mut self, event: AgentTokenEvent) {
        self.live = matches!(event, AgentTokenEvent::AgentTokenCreated(_));
    }

    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        unknown_agent()
    }

    fn claims(_id: Uuid, event: &AgentTokenEvent) -> Vec<Claim> {
        match event {
            AgentTokenEvent::AgentTokenCreated(new) => {
                vec![Claim::new(ClaimOp::Require, AGENT_CLAIM, new.agent.id.to_string())]
            }
            AgentTokenEvent::AgentTokenRevoked => Vec::new(),
        }
    }
}
