//! `signalbox`: starts the service and tends it.

mod doctor;
mod embedded;
mod extract;
mod keys;
mod log;
mod projections;
mod serve;
mod setup;
mod token;
mod up;
mod user;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use signalbox_config::Config;

/// Files, sensors and documents on one event log.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    /// Configuration file.
    #[arg(long, env = "SIGNALBOX_CONFIG", global = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start everything on this machine, with a private database and bus unless addresses are configured.
    Up,
    /// Serve roles against a configured database and bus.
    Serve(serve::ServeArgs),
    /// Bring the database schema up to date.
    Migrate,
    /// Manage users.
    #[command(subcommand)]
    User(user::UserCommand),
    /// Manage API tokens.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Look at read models, or build them anew.
    #[command(subcommand)]
    Projections(projections::ProjectionsCommand),
    /// Read the log, carry it, and tell whether it is as it was.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Manage the keys that sign logins.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Look at everything that the service stands on, and say how to mend what is wrong.
    Doctor(doctor::DoctorArgs),
    /// Print the description of the interface (OpenAPI).
    Openapi,
    /// Extract the text of documents, on this machine and without any server.
    Extract(extract::ExtractArgs),
    /// Parse documents for the process that starts this one.
    #[command(hide = true)]
    ParseDocuments,
    /// Describe plugins for the process that starts this one.
    #[command(hide = true)]
    DescribePlugins {
        /// The Python that this process becomes.
        interpreter: PathBuf,
        /// Where its plugin SDK is.
        sdk: PathBuf,
        /// What it may read.
        readable: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("signalbox: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if matches!(cli.command, Command::Openapi) {
        println!("{}", serde_json::to_string_pretty(&signalbox_gateway::openapi())?);
        return Ok(ExitCode::SUCCESS);
    }
    // First, and with nothing of the rest: this process meets hostile files.
    if matches!(cli.command, Command::ParseDocuments) {
        signalbox_documents::run_child()?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Command::DescribePlugins { interpreter, sdk, readable } = cli.command {
        match signalbox_plugins::run_child(interpreter, sdk, &readable)? {}
    }
    // Two providers of cryptography may be compiled in by accident; this one is meant. It fails only when set twice.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = Config::load(cli.config.as_deref(), &std::env::vars().collect())?;
    // These say themselves what a user has to know.
    if !matches!(cli.command, Command::Extract(_) | Command::Doctor(_)) {
        signalbox_telemetry::start(&config.log)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        match cli.command {
            Command::Up => up::run(config).await,
            Command::Serve(args) => serve::run(config, args).await,
            Command::Migrate => setup::migrate(&config).await,
            Command::User(command) => user::run(config, command).await,
            Command::Token(command) => token::run(config, command).await,
            Command::Projections(command) => return projections::run(config, command).await,
            Command::Log(command) => return log::run(config, command).await,
            Command::Keys(command) => keys::run(config, command).await,
            Command::Doctor(args) => return doctor::run(&config, &args).await,
            Command::Extract(args) => return extract::run(&config, args).await,
            Command::Openapi | Command::ParseDocuments | Command::DescribePlugins { .. } => Ok(()),
        }
        .map(|()| ExitCode::SUCCESS)
    })
}
