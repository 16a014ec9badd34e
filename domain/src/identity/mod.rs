//! Users, their sessions and their API tokens.

mod api_token;
mod external;
mod role;
mod session;
mod user;

pub use api_token::{ApiToken, ApiTokenCommand, ApiTokenEvent, NewApiToken};
pub use external::ExternalIdentity;
pub use role::Role;
pub use session::{Session, SessionCommand, SessionEvent};
pub use user::{NewUser, User, UserChanges, UserCommand, UserEvent};
