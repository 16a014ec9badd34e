//! Who is asking: users by JWT, agents by token.

mod agent;
mod extractors;
mod keys;
mod memory;
mod passwords;
mod sessions;

pub(crate) use agent::{AgentAuth, AgentTokens, hash_secret};
pub(crate) use extractors::{Admin, Reader, Writer, bearer};
pub(crate) use keys::Keys;
pub use keys::rotate;
pub use passwords::{HashError, Passwords};
pub(crate) use sessions::{Sessions, Who};
