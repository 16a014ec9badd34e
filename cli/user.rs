use std::{
    env,
    io::{self, IsTerminal, Read},
};

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_domain::{
    identity::{NewUser, Role, User, UserCommand as DomainCommand},
    kernel::{Actor, Metadata},
};
use signalbox_gateway::Passwords;
use signalbox_projections::{
    Page,
    identity::queries::{self, UserFilter},
};

use crate::setup;

/// Users that are listed at most.
const MOST: i64 = 10_000;

/// What can be done with users.
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
    },
    /// List users.
    List {
        /// One line of JSON for each.
        #[arg(long)]
        json: bool,
    },
}

/// Runs a command on users against the running service.
pub(crate) async fn run(config: Config, command: UserCommand) -> anyhow::Result<()> {
    match command {
        UserCommand::Create { email, username, role } => create(&config, email, username, role).await,
        UserCommand::List { json } => list(&config, json).await,
    }
}

async fn create(config: &Config, email: String, username: Option<String>, role: Role) -> anyhow::Result<()> {
    let password = read_password()?;
    ensure!((8..=256).contains(&password.chars().count()), "the password must be 8 to 256 characters long");
    let username = username.unwrap_or_else(|| email.split('@').next().unwrap_or_default().to_owned());
    let password_hash = Passwords::new(1)?.hash(password).await?;
    let new = NewUser { number: 0, email: email.clone(), username, role, password_hash };
    let clock = Clock::system();
    let command = DomainCommand::Create(new);
    setup::bus(config).await?.send::<User>(clock.new_id(), None, &metadata(&clock), &command).await?;
    println!("User {email} created with role {role}.");
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
    }
}

async fn list(config: &Config, json: bool) -> anyhow::Result<()> {
    let pool = setup::database(config).await?;
    let (users, total) =
        queries::users(&pool, &UserFilter::default(), Page { limit: MOST, offset: 0 }).await?;
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

fn read_password() -> anyhow::Result<String> {
    if let Ok(password) = env::var("SIGNALBOX_PASSWORD") {
        return Ok(password);
    }
    ensure!(!io::stdin().is_terminal(), "no password: set SIGNALBOX_PASSWORD, or pipe it in");
    let mut text = String::new();
    io::stdin().take(4096).read_to_string(&mut text).context("the password cannot be read")?;
    Ok(text.trim_end_matches(['\n', '\r']).to_owned())
}
