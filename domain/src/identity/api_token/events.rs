use serde::{Deserialize, Serialize};

use super::NewApiToken;
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ApiTokenCommand {
    /// Create the token.
    Create(NewApiToken),
    /// Note that a token of an earlier version is a controller's; no change for others.
    NoteController,
    /// Make it void.
    Revoke,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ApiTokenEvent {
    /// A token exists now.
    ApiTokenCreated(NewApiToken),
    /// The token, which is of an earlier version, is a controller's.
    ApiTokenControllerNoted,
    /// The token is void.
    ApiTokenRevoked,
}

event_kinds!(ApiTokenEvent, ApiTokenEventKind {
    ApiTokenCreated = "api_token_created", "1";
    ApiTokenControllerNoted = "api_token_controller_noted", "1";
    ApiTokenRevoked = "api_token_revoked", "1";
});
