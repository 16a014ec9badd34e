//! `signalbox`: starts the service and tends it.

mod doctor;
mod embedded;
mod extract;
mod keys;
mod log;
mod manual;
mod progress;
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
    Migrate {
        /// JSON for programs.
        #[arg(long)]
        json: bool,
    },
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
    /// Print what makes a shell complete commands, flags and their values.
    Completions(manual::CompletionsArgs),
    /// Print the manual page, or write one for each command.
    Man(manual::ManArgs),
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
            eprintln!("signalbox: {}", told_once(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes; many errors tell their cause in their own message, which is not said twice.
fn told_once(error: &anyhow::Error) -> String {
    let causes = error.chain().map(ToString::to_string);
    let told =
        |told: String, cause: String| if told.contains(&cause) { told } else { format!("{told}: {cause}") };
    causes.reduce(told).unwrap_or_default()
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    if matches!(cli.command, Command::Openapi) {
        println!("{}", serde_json::to_string_pretty(&signalbox_gateway::openapi())?);
        return Ok(ExitCode::SUCCESS);
    }
    match cli.command {
        Command::Completions(args) => return manual::complete(&args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => return manual::write(&args).map(|()| ExitCode::SUCCESS),
        _ => {}
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
            Command::Migrate { json } => setup::migrate(&config, json).await,
            Command::User(command) => user::run(config, command).await,
            Command::Token(command) => token::run(config, command).await,
            Command::Projections(command) => return projections::run(config, command).await,
            Command::Log(command) => return log::run(config, command).await,
            Command::Keys(command) => keys::run(config, command).await,
            Command::Doctor(args) => return doctor::run(&config, &args).await,
            Command::Extract(args) => return extract::run(&config, args).await,
            Command::Openapi
            | Command::Completions(_)
            | Command::Man(_)
            | Command::ParseDocuments
            | Command::DescribePlugins { .. } => Ok(()),
        }
        .map(|()| ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Those that only start something, or print what is made for a program anyway.
    const WITHOUT_JSON: [&str; 7] = ["up", "serve", "openapi", "completions", "man", "extract", "head"];

    fn check(command: &clap::Command, found: &mut Vec<String>) {
        let name = command.get_name();
        let shown =
            |text: Option<&clap::builder::StyledStr>| text.is_some_and(|text| !text.to_string().is_empty());
        if !shown(command.get_about()) {
            found.push(format!("{name} does not say what it does"));
        }
        let unexplained = command.get_arguments().filter(|argument| !shown(argument.get_help()));
        found.extend(unexplained.map(|argument| format!("{name}: {} is not explained", argument.get_id())));
        let is_leaf = !command.has_subcommands();
        let has_json = command.get_arguments().any(|argument| argument.get_id() == "json");
        if is_leaf && !has_json && !WITHOUT_JSON.contains(&name) {
            found.push(format!("{name} has no --json"));
        }
        command
            .get_subcommands()
            .filter(|command| !command.is_hide_set())
            .for_each(|command| check(command, found));
    }

    #[test]
    fn every_command_and_flag_is_explained_and_what_is_told_is_told_to_programs_too() {
        let command = Cli::command();
        let mut found = Vec::new();
        let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
        commands.for_each(|command| check(command, &mut found));
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn no_cause_is_told_twice() {
        let refused = std::io::Error::other("connection refused");
        let telling =
            anyhow::Error::new(refused).context("PostgreSQL cannot be reached: connection refused; start it");
        let wrapped = telling.context("the schema was not looked at");
        let expected =
            "the schema was not looked at: PostgreSQL cannot be reached: connection refused; start it";
        assert_eq!(told_once(&wrapped), expected);
    }
}
