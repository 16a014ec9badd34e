//! The Signalbox agent: moves files between the directories of one machine and a gateway.
//!
//! It speaks the protocol of `docs/agent-protocol.md` and knows nothing else of Signalbox: no database, no event
//! log, no other crate of the workspace. One use, in a test or another program:
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use signalbox_agent::{CancellationToken, Config, Terminal, run};
//! let config = Config::load(Some("agent.toml".as_ref()), Default::default())?;
//! let stop = CancellationToken::new();
//! run(config, Terminal::default(), stop).await?;
//! # Ok(())
//! # }
//! ```

mod address;
mod agent;
mod backoff;
pub mod cli;
mod clock;
mod config;
mod confine;
mod connection;
mod digest;
mod enroll;
mod failure;
mod gateway;
mod manual;
mod outbox;
mod protocol;
#[cfg(test)]
mod scratch;
mod secret;
mod system_info;
mod terminal;
mod timing;
mod transfer;
mod work;

pub use agent::{StartError, run};
pub use config::{Config, ConfigError, Transport};
pub use terminal::Terminal;
pub use timing::Timing;
pub use tokio_util::sync::CancellationToken;
