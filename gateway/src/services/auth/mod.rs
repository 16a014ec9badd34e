//! Credentials: keys, sessions, tokens and passwords.

mod agent_tokens;
mod answers;
mod api_tokens;
mod credentials;
mod current_user;
mod derived;
mod keys;
mod memory;
mod passwords;
mod sessions;
mod token_uses;
mod turns;

pub(crate) use agent_tokens::{AgentAuth, AgentTokens, hash_secret};
pub use api_tokens::new_api_token;
pub(crate) use api_tokens::{ApiTokens, api_token_text};
pub(crate) use credentials::Credentials;
pub(crate) use current_user::{Credential, CurrentUser, RequiredRole};
pub use derived::{DerivedTokens, derived_tokens};
pub use keys::rotate;
pub(crate) use keys::{Keys, keyed_hash};
pub(crate) use passwords::PASSWORD;
pub use passwords::{HashError, Passwords, WeakPassword, check_new_password};
pub(crate) use sessions::Sessions;
