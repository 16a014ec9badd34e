use anyhow::ensure;
use chrono::{DateTime, TimeDelta, Utc};
use clap::Subcommand;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::server_time;
use signalbox_domain::identity::{ApiToken, ApiTokenCommand, NewApiToken};
use signalbox_projections::{
    Listed, Page,
    identity::queries::{self, ApiTokenFilter, ListedApiToken},
};
use uuid::Uuid;

use crate::{
    setup,
    user::{find, metadata},
};

/// Default lifetime of a token, in days.
const LIFE: &str = "365";
/// Tokens that are listed at most.
const MOST: i64 = 10_000;

/// Commands for API tokens.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create an API token and print it; it is shown this once.
    Create {
        /// Display name.
        name: String,
        /// E-mail address or name of its owner; the token carries the owner's current permissions.
        #[arg(long)]
        user: String,
        /// Days until it stops working; 0 for never.
        #[arg(long, default_value = LIFE, value_parser = clap::value_parser!(i64).range(0..=36_500))]
        days: i64,
        /// For a controller: it reads the secrets in the configurations of plugin instances.
        #[arg(long)]
        controller: bool,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// List API tokens.
    List {
        /// Only those of this user, by e-mail address or name.
        #[arg(long)]
        user: Option<String>,
        /// One line of JSON for each.
        #[arg(long)]
        json: bool,
    },
    /// Make an API token void everywhere within a second.
    Revoke {
        /// Its key, as `list` shows it.
        id: Uuid,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command on API tokens against the running service.
pub(crate) async fn run(config: Config, command: TokenCommand) -> anyhow::Result<()> {
    match command {
        TokenCommand::Create { name, user, days, controller, json } => {
            create(&config, name, &user, (days, controller), json).await
        }
        TokenCommand::List { user, json } => list(&config, user.as_deref(), json).await,
        TokenCommand::Revoke { id, json } => revoke(&config, id, json).await,
    }
}

async fn create(
    config: &Config,
    name: String,
    login: &str,
    (days, controller): (i64, bool),
    json: bool,
) -> anyhow::Result<()> {
    let clock = Clock::system();
    let (secret, secret_sha256) = signalbox_gateway::new_api_token(config.identity.api_token_prefix)?;
    let pool = setup::database(config).await?;
    let now = server_time(&pool, &clock).await?;
    let expires_at = (days > 0).then(|| now + TimeDelta::days(days));
    let user = find(&pool, login).await?;
    let new =
        NewApiToken { user, name: name.clone(), secret_sha256, expires_at, controller: Some(controller) };
    let id = clock.new_id();
    let command = ApiTokenCommand::Create(new);
    setup::bus(config).await?.send::<ApiToken>(id, None, &metadata(&clock), &command).await?;
    if json {
        println!("{}", json!({"public_id": id, "name": name, "token": secret, "expires_at": expires_at}));
    } else {
        eprintln!("Token {name} ({id}) of {login}, {}. It is not shown again:", until(expires_at));
        println!("{secret}");
    }
    Ok(())
}

async fn list(config: &Config, login: Option<&str>, json: bool) -> anyhow::Result<()> {
    let pool = setup::database(config).await?;
    let user = match login {
        Some(login) => Some(find(&pool, login).await?),
        None => None,
    };
    let filter = ApiTokenFilter { user, name: None };
    let (tokens, total) =
        queries::api_tokens(&pool, &filter, ListedApiToken::default_order(), Page { limit: MOST, offset: 0 })
            .await?;
    for listed in &tokens {
        let (token, last_used) = (&listed.token, listed.last_used);
        if json {
            println!(
                "{}",
                json!({"public_id": token.id, "name": token.name, "user_public_id": token.user_id,
                    "created_at": token.created_at, "expires_at": token.expires_at, "last_used": last_used})
            );
        } else {
            println!("{}  {:30}  {}", token.id, token.name, until(token.expires_at));
        }
    }
    ensure!(total <= MOST, "only the newest {MOST} of {total} tokens are listed: name a --user");
    Ok(())
}

async fn revoke(config: &Config, id: Uuid, json: bool) -> anyhow::Result<()> {
    let clock = Clock::system();
    let bus = setup::bus(config).await?;
    bus.send::<ApiToken>(id, None, &metadata(&clock), &ApiTokenCommand::Revoke).await?;
    if json {
        println!("{}", json!({"public_id": id}));
    } else {
        println!("Token {id} is void.");
    }
    Ok(())
}

fn until(expires_at: Option<DateTime<Utc>>) -> String {
    expires_at.map_or_else(|| "for ever".to_owned(), |time| format!("until {}", time.format("%Y-%m-%d")))
}
