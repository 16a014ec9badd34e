mod events;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use self::events::{ApiTokenCommand, ApiTokenEvent, ApiTokenEventKind};
use crate::kernel::{Decider, Rejection, Sha256Hex, UserId, required_text};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;

/// A credential that a user has made for a program.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ApiToken {
    live: bool,
    #[serde(default)]
    controller: Option<bool>,
}

/// A new token; the secret itself is never part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewApiToken {
    /// Owner of the token. The token carries the owner's current permissions.
    pub user: UserId,
    /// Display name, 1–255 characters.
    pub name: String,
    /// SHA-256 of the secret.
    pub secret_sha256: Sha256Hex,
    /// When it stops working; `None` for never.
    pub expires_at: Option<DateTime<Utc>>,
    /// Whether it is for a controller, which reads the secrets of plugin instances; `None` in events of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub controller: Option<bool>,
}

impl Decider for ApiToken {
    const TYPE: &'static str = "api_token";
    const CONTEXT: &'static str = "identity";
    const STATE_VERSION: i32 = 2;
    type Command = ApiTokenCommand;
    type Event = ApiTokenEvent;

    fn decide(&self, command: ApiTokenCommand) -> Result<Vec<ApiTokenEvent>, Rejection> {
        match command {
            ApiTokenCommand::Create(_) if self.live => {
                Err(Rejection::conflict("token_exists", "This token exists already."))
            }
            ApiTokenCommand::Create(new) => {
                let name = required_text("name", &new.name, MAX_NAME)?;
                Ok(vec![ApiTokenEvent::ApiTokenCreated(NewApiToken { name, ..new })])
            }
            ApiTokenCommand::NoteController if self.live => {
                let is_undecided = self.controller.is_none();
                Ok(is_undecided.then_some(ApiTokenEvent::ApiTokenControllerNoted).into_iter().collect())
            }
            ApiTokenCommand::NoteController => Err(Rejection::not_found("Token")),
            ApiTokenCommand::Revoke if self.live => Ok(vec![ApiTokenEvent::ApiTokenRevoked]),
            ApiTokenCommand::Revoke => Err(Rejection::not_found("Token")),
        }
    }

    fn evolve(&mut self, event: ApiTokenEvent) {
        match event {
            ApiTokenEvent::ApiTokenCreated(new) => (self.live, self.controller) = (true, new.controller),
            ApiTokenEvent::ApiTokenControllerNoted => self.controller = Some(true),
            ApiTokenEvent::ApiTokenRevoked => self.live = false,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn new(name: &str) -> NewApiToken {
        NewApiToken {
            user: UserId(Uuid::nil()),
            name: name.to_owned(),
            secret_sha256: Sha256Hex::from_bytes(&[0; 32]),
            expires_at: None,
            controller: None,
        }
    }

    #[test]
    fn only_a_token_of_an_earlier_version_is_noted_as_a_controllers() {
        let mut token = ApiToken::default();
        assert!(token.decide(ApiTokenCommand::NoteController).is_err());
        token.evolve(ApiTokenEvent::ApiTokenCreated(new("old")));
        let noted = vec![ApiTokenEvent::ApiTokenControllerNoted];
        assert_eq!(token.decide(ApiTokenCommand::NoteController).unwrap(), noted);
        token.evolve(ApiTokenEvent::ApiTokenControllerNoted);
        assert_eq!(token.decide(ApiTokenCommand::NoteController).unwrap(), vec![]);
        let mut other = ApiToken::default();
        other.evolve(ApiTokenEvent::ApiTokenCreated(NewApiToken { controller: Some(false), ..new("new") }));
        assert_eq!(other.decide(ApiTokenCommand::NoteController).unwrap(), vec![]);
    }

    #[test]
    fn names_are_trimmed_required_and_bounded() {
        let made = ApiToken::default().decide(ApiTokenCommand::Create(new(" press "))).unwrap();
        assert_eq!(made, vec![ApiTokenEvent::ApiTokenCreated(new("press"))]);
        for name in ["", "  ", "a\0b", &"x".repeat(256)] {
            let refused = ApiToken::default().decide(ApiTokenCommand::Create(new(name)));
            assert!(refused.is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_token_is_revoked_once() {
        let mut token = ApiToken::default();
        assert!(token.decide(ApiTokenCommand::Revoke).is_err());
        token.evolve(ApiTokenEvent::ApiTokenCreated(new("press")));
        assert!(token.decide(ApiTokenCommand::Create(new("press"))).is_err());
        assert_eq!(token.decide(ApiTokenCommand::Revoke).unwrap(), vec![ApiTokenEvent::ApiTokenRevoked]);
        token.evolve(ApiTokenEvent::ApiTokenRevoked);
        assert!(token.decide(ApiTokenCommand::Revoke).is_err());
    }
}
