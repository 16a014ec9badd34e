//! `signalbox`: starts the service and tends it.

mod doctor;
mod embedded;
mod extract;
mod keys;
mod log;
mod manual;
mod poison;
mod progress;
mod projections;
mod retention;
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
    /// Show or rebuild read models.
    #[command(subcommand)]
    Projections(projections::ProjectionsCommand),
    /// Drop datapoints that are older than they are kept.
    #[command(subcommand)]
    Retention(retention::RetentionCommand),
    /// Read, export, import and verify the log.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// Manage the keys that sign logins.
    #[command(subcommand)]
    Keys(keys::KeysCommand),
    /// Check the service's dependencies, and state the remedy of each fault.
    Doctor(doctor::DoctorArgs),
    /// Print the description of the interface (OpenAPI).
    Openapi,
    /// Print the completions of a shell: commands, flags and their values.
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
        /// Examine them on a kernel that cannot confine this process, too.
        #[arg(long)]
        allow_unconfined: bool,
        /// The Python that this process becomes.
        interpreter: PathBuf,
        /// Where its plugin SDK is.
        sdk: PathBuf,
        /// Paths that it may read.
        readable: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("signalbox: {}", format_error_chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error with its causes. Many errors repeat their cause in their own message; it is printed once.
fn format_error_chain(error: &anyhow::Error) -> String {
    let causes = error.chain().map(ToString::to_string);
    let joined = |message: String, cause: String| {
        if message.contains(&cause) { message } else { format!("{message}: {cause}") }
    };
    causes.reduce(joined).unwrap_or_default()
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
    if let Command::DescribePlugins { allow_unconfined, interpreter, sdk, readable } = cli.command {
        signalbox_plugins::run_child(interpreter, sdk, &readable, allow_unconfined)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Two providers of cryptography may be compiled in by accident; this one is meant. It fails only when set twice.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let config = Config::load(cli.config.as_deref(), &std::env::vars().collect())?;
    // These print their own messages for users.
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
            Command::Retention(command) => retention::run(config, command).await,
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

    /// Commands that only start something, or whose output is made for a program.
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
    fn every_command_has_help_and_reports_have_a_json_form() {
        let command = Cli::command();
        let mut found = Vec::new();
        let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
        commands.for_each(|command| check(command, &mut found));
        assert!(found.is_empty(), "{found:#?}");
    }

    #[test]
    fn no_cause_is_printed_twice() {
        let refused = std::io::Error::other("connection refused");
        let repeating =
            anyhow::Error::new(refused).context("PostgreSQL cannot be reached: connection refused; start it");
        let wrapped = repeating.context("the schema was not looked at");
        let expected =
            "the schema was not looked at: PostgreSQL cannot be reached: connection refused; start it";
        assert_eq!(format_error_chain(&wrapped), expected);
    }
}
