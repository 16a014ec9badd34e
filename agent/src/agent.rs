//! The agent as a whole: work, outbox and connection put together.

use crate::{
    config::Config,
    confine::{ConfineError, Roots},
    connection::{self, Link},
    gateway::Gateway,
    outbox::Outbox,
    terminal::Terminal,
    transfer::Context,
    work::Work,
};
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Messages that may be lost wait here for the connection; more than these are dropped.
const MESSAGES: usize = 64;

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Roots(#[from] ConfineError),
    #[error("The HTTP client cannot start: {0}.")]
    Http(#[from] reqwest::Error),
}

/// Runs an agent until `stop` is cancelled. Fails only at start.
pub async fn run(config: Config, terminal: Terminal, stop: CancellationToken) -> Result<(), StartError> {
    let roots = Roots::open(&config.roots)?;
    let gateway = Gateway::new(&config)?;
    let (sender, messages) = mpsc::channel(MESSAGES);
    let outbox = Arc::new(Outbox::default());
    let context = Arc::new(Context { config: config.clone(), gateway: gateway.clone(), roots });
    let work = Arc::new(Work::new(context, outbox.clone(), sender, terminal));
    let link = Link { config, gateway, work: work.clone(), outbox, messages, stop };
    tokio::select! {
        () = connection::run(link) => {}
        () = work.sweep() => {}
    }
    work.stop().await;
    Ok(())
}
