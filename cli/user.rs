use std::{
    env,
    io::{self, IsTerminal, Read},
};

use anyhow::{Context as _, anyhow, ensure};
use clap::Subcommand;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_database::server_time;
use signalbox_domain::{
    identity::{
        ApiToken, ApiTokenCommand, NewUser, Role, Session, SessionCommand, User, UserCommand as DomainCommand,
    },
    kernel::{Actor, ErrorKind, Metadata, UserId},
};
use signalbox_gateway::{Passwords, check_new_password};
use signalbox_projections::{
    Listed, Page,
    identity::{
        UserRow,
        queries::{self, ApiTokenFilter, ListedApiToken, UserFilter},
    },
};
use sqlx::PgPool;

use crate::setup;

/// Users that are listed at most.
const MOST: i64 = 10_000;

/// Commands for users.
#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Create a user. The password is read from SIGNALBOX_PASSWORD or from standard input.
    Create {
        /// E-mail address.
        email: String,
        /// User name; the part of the address before the `@`, if absent.
        #[arg(long)]
        username: Option<String>,
        /// admin, operator or viewer.
        #[arg(long, default_value = "operator")]
        role: Role,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
    /// List users.
    List {
        /// One line of JSON for each.
        #[arg(long)]
        json: bool,
    },
    /// End all logins of a user and make all API tokens of the user void, everywhere within a second.
    ///
    /// The user remains and may log in again: change the password too if others may know it.
    Revoke {
        /// E-mail address or user name.
        user: String,
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command on users against the running service.
pub(crate) async fn run(config: Config, command: UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Create { email, username, role, json } => {
            create(&config, email, username, role, json).await
        }
        UserCommand::List { json } => list(&config, json).await,
        UserCommand::Revoke { user, json } => revoke(&config, &user, json).await,
    }
}

async fn create(
    config: &Config,
    email: String,
    username: Option<String>,
    role: Role,
    json: bool,
) -> anyhow::Result<()> {
    let password = read_password()?;
    check_new_password(&password).map_err(|weak| anyhow!("the password {weak}"))?;
    let username = username.unwrap_or_else(|| email.split('@').next().unwrap_or_default().to_owned());
    let password_hash = Passwords::new(1).hash(password).await?;
    let new = NewUser { number: 0, email: email.clone(), username: username.clone(), role, password_hash };
    let clock = Clock::system();
    let (id, command) = (clock.new_id(), DomainCommand::Create(new));
    setup::bus(config).await?.send::<User>(id, None, &metadata(&clock), &command).await?;
    if json {
        let role = role.as_str();
        println!("{}", json!({"public_id": id, "role": role, "email": email, "username": username}));
    } else {
        println!("User {email} created with role {role}.");
    }
    Ok(())
}

/// Metadata of a command that was typed in.
pub(crate) fn metadata(clock: &Clock) -> Metadata {
    Metadata {
        command_id: clock.new_id(),
        actor: Actor::system("command-line"),
        causation: None,
        correlation: String::new(),
        traceparent: None,
        restored_version: None,
    }
}

async fn list(config: &Config, json: bool) -> anyhow::Result<()> {
    let pool = setup::database(config).await?;
    let (users, total) = queries::users(
        &pool,
        &UserFilter::default(),
        UserRow::default_order(),
        Page { limit: MOST, offset: 0 },
    )
    .await?;
    for user in users {
        if json {
            println!(
                "{}",
                json!({"id": user.number, "public_id": user.id, "role": user.role, "email": user.email,
                    "username": user.username, "created_at": user.created_at})
            );
        } else {
            println!("{:6}  {:8}  {:30}  {}", user.number, user.role, user.email, user.username);
        }
    }
    ensure!(total <= MOST, "only the newest {MOST} of {total} users are listed");
    Ok(())
}

/// The user with this e-mail address or name.
pub(crate) async fn find(pool: &PgPool, login: &str) -> anyhow::Result<UserId> {
    let user = queries::users_by_login(pool, login).await?.into_iter().next();
    let user = user.with_context(|| format!("there is no user {login}: `signalbox user list` shows them"))?;
    Ok(user.id)
}

async fn revoke(config: &Config, login: &str, json: bool) -> anyhow::Result<()> {
    let (pool, bus, clock) = (setup::database(config).await?, setup::bus(config).await?, Clock::system());
    let user = find(&pool, login).await?;
    let sessions = queries::live_sessions_of(&pool, user, server_time(&pool, &clock).await?).await?;
    for session in &sessions {
        bus.send::<Session>(session.0, None, &metadata(&clock), &SessionCommand::End).await?;
    }
    let filter = ApiTokenFilter { user: Some(user), name: None };
    let (tokens, total) =
        queries::api_tokens(&pool, &filter, ListedApiToken::default_order(), Page { limit: MOST, offset: 0 })
            .await?;
    for token in &tokens {
        let revoke = ApiTokenCommand::Revoke;
        match bus.send::<ApiToken>(token.token.id, None, &metadata(&clock), &revoke).await {
            // Somebody else was faster.
            Err(rejection) if rejection.kind == ErrorKind::NotFound => {}
            sent => drop(sent?),
        }
    }
    ensure!(
        total <= MOST,
        "{MOST} of {total} API tokens of {login} are void: run the command again to revoke the rest"
    );
    let (sessions, tokens) = (sessions.len(), tokens.len());
    if json {
        println!("{}", json!({"public_id": user, "sessions": sessions, "tokens": tokens}));
    } else {
        println!("Of {login}, {sessions} logins have ended and {tokens} API tokens are void.");
    }
    Ok(())
}

fn read_password() -> anyhow::Result<String> {
    if let Ok(password) = env::var("SIGNALBOX_PASSWORD") {
        return Ok(password);
    }
    ensure!(!io::stdin().is_terminal(), "no password: set SIGNALBOX_PASSWORD, or pipe it in");
    let mut text = String::new();
    io::stdin().take(4096).read_to_string(&mut text).context("the password cannot be read")?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}
