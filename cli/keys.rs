use clap::Subcommand;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::{
    ops::signing_keys::{SigningKey, signing_keys},
    server_time,
};
use signalbox_gateway::{DerivedTokens, derived_tokens};
use sqlx::PgPool;

use crate::setup;

/// Commands for signing keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Sign new logins with a new key. The key before still verifies; older ones are retired.
    Rotate {
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// List the signing keys, and how many valid tokens follow from one of them.
    List {
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command on signing keys.
pub(crate) async fn run(config: Config, command: KeysCommand) -> anyhow::Result<()> {
    let pool = setup::database(&config).await?;
    match command {
        KeysCommand::Rotate { json } => rotate(&pool, json).await,
        KeysCommand::List { json } => list(&pool, json).await,
    }
}

async fn rotate(pool: &PgPool, json: bool) -> anyhow::Result<()> {
    let kid = signalbox_gateway::rotate_signing_key(pool, &Clock::system()).await?;
    if json {
        println!("{}", json!({ "kid": kid }));
    } else {
        println!("New logins are signed with key {kid}. Gateways take it up within 5 s.");
        let derived = derived_tokens(pool, server_time(pool, &Clock::system()).await?).await?;
        if derived != DerivedTokens::default() {
            println!("{}. Rotation does not end them: {DERIVED_MEND}.", describe_derived(derived));
        }
    }
    Ok(())
}

/// How to replace tokens that follow from a signing key.
pub(crate) const DERIVED_MEND: &str = "create new tokens, give them to their clients, and revoke the old ones (`signalbox token`, or the interface)";

/// The finding in words, with both numbers.
pub(crate) fn describe_derived(derived: DerivedTokens) -> String {
    let DerivedTokens { api, agent } = derived;
    format!(
        "{api} API tokens and {agent} agent tokens of an earlier version follow from a signing key in the database"
    )
}

async fn list(pool: &PgPool, json: bool) -> anyhow::Result<()> {
    let derived = derived_tokens(pool, server_time(pool, &Clock::system()).await?).await?;
    let keys = signing_keys(pool).await?;
    if json {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| json!({ "kid": key.kid, "created_at": key.created_at, "retired_at": key.retired_at }))
            .collect();
        let derived = json!({ "api": derived.api, "agent": derived.agent });
        println!("{}", json!({ "keys": keys, "derived_tokens": derived }));
        return Ok(());
    }
    for SigningKey { kid, created_at, retired_at } in keys {
        let state = retired_at.map_or_else(|| "in force".to_owned(), |at| format!("retired {at:.0}"));
        println!("{kid}  made {created_at:.0}  {state}");
    }
    println!("{}.", describe_derived(derived));
    Ok(())
}
