//! Who is asking: users by JWT or API token, agents by token.

mod agent;
mod api_tokens;
mod extractors;
mod keys;
mod memory;
mod passwords;
mod sessions;
mod who;

pub(crate) use agent::{AgentAuth, AgentTokens, hash_secret};
pub(crate) use api_tokens::ApiTokens;
pub use api_tokens::new_api_token;
pub(crate) use extractors::{Admin, Reader, Writer, identify, presented};
pub(crate) use keys::Keys;
pub use keys::rotate;
pub use passwords::{HashError, Passwords};
pub(crate) use sessions::Sessions;
pub(crate) use who::{Credential, Who};
