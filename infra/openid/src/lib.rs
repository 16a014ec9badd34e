//! Logins at an OpenID provider: OpenID Connect Core 1.0, authorization code flow with PKCE (RFC 7636).
//!
//! The address of the provider is the operator's, so it may be anywhere; its answers are bounded in time and size. Its
//! metadata and keys are remembered for an hour, and keys are fetched again when a token names one that is not known.
//!
//! It is not a session, and knows no users: it says who somebody is at the provider.
//!
//! ```no_run
//! # async fn example(config: signalbox_config::Sso) -> Result<(), Box<dyn std::error::Error>> {
//! use signalbox_openid::{Attempt, Provider};
//! let provider = Provider::new(&config, signalbox_clock::Clock::system())?;
//! let attempt = Attempt { state: "…".into(), nonce: "…".into(), verifier: "…".into() };
//! let to = provider.authorization_url(&attempt).await?; // the browser is redirected there, and returns with a code
//! let person = provider.redeem("the code", None, &attempt, signalbox_clock::Clock::system().now()).await?;
//! # Ok(()) }
//! ```

mod id_token;
mod keys;
mod metadata;
mod provider;
mod web;

pub use id_token::TokenError;
pub use provider::{Attempt, LoginError, Person, Provider, SettingsError};
