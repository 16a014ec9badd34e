use serde::{Deserialize, Serialize};

use super::NewAgentToken;
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum AgentTokenCommand {
    /// Create the token.
    Create(NewAgentToken),
    /// Make it void.
    Revoke,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentTokenEvent {
    /// A token exists now.
    AgentTokenCreated(NewAgentToken),
    /// The token is void.
    AgentTokenRevoked,
}

event_kinds!(AgentTokenEvent, AgentTokenEventKind {
    AgentTokenCreated = "agent_token_created", "1";
    AgentTokenRevoked = "agent_token_revoked", "1";
});
