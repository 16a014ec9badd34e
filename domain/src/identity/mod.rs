//! Users, their sessions and their API tokens.

mod api_token;
mod external;
mod role;
mod session;
mod user;

pub use api_token::{ApiToken, ApiTokenCommand, ApiTokenEvent, ApiTokenEventKind, NewApiToken};
pub use external::ExternalIdentity;
pub use role::Role;
pub use session::{Session, SessionCommand, SessionEvent, SessionEventKind};
pub use user::{EMAIL_CLAIM, NewUser, User, UserChanges, UserCommand, UserEvent, UserEventKind};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::api_token::MAX_NAME as TOKEN_NAME;
    pub use super::user::{MAX_EMAIL, USERNAME};
}
