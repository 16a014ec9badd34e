use clap::Subcommand;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;

use crate::setup;

/// What can be done with signing keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Sign new logins with a new key. The key before still verifies; older ones are retired.
    Rotate {
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command on signing keys.
pub(crate) async fn run(config: Config, command: KeysCommand) -> anyhow::Result<()> {
    let KeysCommand::Rotate { json } = command;
    let pool = setup::database(&config).await?;
    let kid = signalbox_gateway::rotate_signing_key(&pool, &Clock::system()).await?;
    if json {
        println!("{}", json!({ "kid": kid }));
    } else {
        println!("New logins are signed with key {kid}. Gateways take it up within 5 s.");
    }
    Ok(())
}
