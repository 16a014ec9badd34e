//! The command line.

use crate::{
    agent,
    config::{Config, ConfigError, DEFAULT_PATH, Transport},
    enroll::{EnrollError, enroll},
    manual,
    terminal::Terminal,
};
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use std::{
    fmt,
    io::{self, IsTerminal},
    path::PathBuf,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use toml::Value;
use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    fmt::{
        FormatFields,
        format::{DefaultFields, Writer},
    },
};

/// Moves files between the directories of this machine and a Signalbox gateway.
#[derive(Debug, Parser)]
#[command(name = "signalbox-agent", version, about, args_conflicts_with_subcommands = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: Settings,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stay connected and move files (the default).
    Run(Settings),
    /// Check address and token, and write the configuration file.
    Enroll(Settings),
    /// Print the completions of a shell.
    Completions {
        /// The shell, e.g. `signalbox-agent completions bash > /etc/bash_completion.d/signalbox-agent`.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Print the manual page, or write one for each command.
    Man {
        /// Folder for a page of each command, e.g. /usr/local/share/man/man1; standard output and one page if absent.
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Args)]
struct Settings {
    /// Configuration file [default: /etc/signalbox/agent.toml, if there is one].
    #[arg(long, env = "SIGNALBOX_AGENT_CONFIG", value_name = "PATH")]
    config: Option<PathBuf>,
    /// Address of the gateway, for instance https://files.example.org.
    #[arg(long, env = "SIGNALBOX_AGENT_URL")]
    url: Option<String>,
    /// Agent token. A token in the environment is not seen by other users, one in a flag is.
    #[arg(long, env = "SIGNALBOX_AGENT_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Directory that transfers may use; may be repeated. The first is the base of relative paths.
    #[arg(long = "root", env = "SIGNALBOX_AGENT_ROOTS", value_name = "DIRECTORY", value_delimiter = ':')]
    roots: Vec<PathBuf>,
    /// How to talk to the gateway.
    #[arg(long, env = "SIGNALBOX_AGENT_TRANSPORT", ignore_case = true)]
    transport: Option<Transport>,
    /// Files of one transfer that move at the same time.
    #[arg(long, env = "SIGNALBOX_AGENT_PARALLEL_FILES", value_name = "COUNT")]
    parallel_files: Option<u32>,
    /// Transfers that run at the same time.
    #[arg(long, env = "SIGNALBOX_AGENT_CONCURRENT_TRANSFERS", value_name = "COUNT")]
    concurrent_transfers: Option<u32>,
    /// How long the gateway may hold a long poll.
    #[arg(long, env = "SIGNALBOX_AGENT_POLL_TIMEOUT_SECONDS", value_name = "SECONDS")]
    poll_timeout_seconds: Option<u32>,
    /// First delay between attempts to connect.
    #[arg(long, env = "SIGNALBOX_AGENT_RECONNECT_BASE_SECONDS", value_name = "SECONDS")]
    reconnect_base_seconds: Option<u32>,
    /// Longest delay between attempts to connect.
    #[arg(long, env = "SIGNALBOX_AGENT_RECONNECT_MAX_SECONDS", value_name = "SECONDS")]
    reconnect_max_seconds: Option<u32>,
    /// Log filter, for instance "debug" or "signalbox_agent=debug".
    #[arg(long, env = "SIGNALBOX_AGENT_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
}

// By hand, because the token stands in it.
impl std::fmt::Debug for Settings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Settings").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why the program ends with an error.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Start(#[from] agent::StartError),
    #[error(transparent)]
    Enroll(#[from] EnrollError),
    #[error("The log filter '{0}' is not valid.")]
    LogFilter(String),
    #[error("Signals cannot be handled: {0}.")]
    Signals(io::Error),
    #[error("What was asked for cannot be written: {0}.")]
    Write(io::Error),
}

impl Cli {
    /// Runs the command.
    pub async fn execute(self) -> Result<(), CliError> {
        match self.command {
            Some(Command::Enroll(settings)) => settings.enroll().await,
            Some(Command::Run(settings)) => settings.run().await,
            Some(Command::Completions { shell }) => {
                manual::complete(Cli::command(), shell).map_err(CliError::Write)
            }
            Some(Command::Man { out }) => {
                manual::write(Cli::command(), out.as_deref()).map_err(CliError::Write)
            }
            None => self.run.run().await,
        }
    }
}

impl Settings {
    async fn run(self) -> Result<(), CliError> {
        let config = Config::load(self.config.as_deref(), self.overrides())?;
        let terminal = Terminal::detect();
        start_log(&self.log, terminal.clone())?;
        let stop = stop_on_signal().map_err(CliError::Signals)?;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            gateway = config.address.as_text(),
            "agent started"
        );
        agent::run(config, terminal, stop).await?;
        tracing::info!("agent stopped");
        Ok(())
    }

    async fn enroll(self) -> Result<(), CliError> {
        let path = self.config.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_PATH));
        let config = enroll(&path, self.overrides()).await?;
        println!("The gateway at {} accepted the token.", config.address.as_text());
        println!("The configuration is in {}.", path.display());
        println!("Next: signalbox-agent run --config {}", path.display());
        println!("  or: systemctl enable --now signalbox-agent");
        Ok(())
    }

    fn overrides(&self) -> toml::Table {
        let number = |value: Option<u32>| value.map(|value| Value::Integer(value.into()));
        let roots =
            self.roots.iter().map(|root| Value::String(root.to_string_lossy().into_owned())).collect();
        let transport = self.transport.map(|transport| match transport {
            Transport::Auto => "auto",
            Transport::Websocket => "websocket",
            Transport::Polling => "polling",
        });
        [
            ("url", self.url.clone().map(Value::String)),
            ("token", self.token.clone().map(Value::String)),
            ("roots", (!self.roots.is_empty()).then_some(Value::Array(roots))),
            ("transport", transport.map(Value::from)),
            ("parallel_files", number(self.parallel_files)),
            ("concurrent_transfers", number(self.concurrent_transfers)),
            ("poll_timeout_seconds", number(self.poll_timeout_seconds)),
            ("reconnect_base_seconds", number(self.reconnect_base_seconds)),
            ("reconnect_max_seconds", number(self.reconnect_max_seconds)),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
    }
}

fn start_log(filter: &str, terminal: Terminal) -> Result<(), CliError> {
    let filter = EnvFilter::try_new(filter).map_err(|_| CliError::LogFilter(filter.to_owned()))?;
    // A second call, in a program that embeds this one, keeps the first log.
    let log = tracing_subscriber::fmt().with_ansi(io::stderr().is_terminal()).with_target(false);
    let log = log.fmt_fields(OneLine);
    let _ = log.with_env_filter(filter).with_writer(terminal).try_init();
    Ok(())
}

/// Writes the fields of an entry on one line: a path that a job names could otherwise look like an entry of its own.
struct OneLine;

impl<'writer> FormatFields<'writer> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        text.chars().try_for_each(|letter| match letter.is_control() {
            true => write!(writer, "{}", letter.escape_default()),
            false => writer.write_char(letter),
        })
    }
}

fn stop_on_signal() -> io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_entry_is_one_line_whatever_a_path_holds() {
        let written = Shared::default();
        let log = tracing_subscriber::fmt().with_ansi(false).fmt_fields(OneLine);
        let writer = written.clone();
        let log = log.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            tracing::warn!(reason = %"no\n2026-11-29T06:00:00Z  INFO forged\u{1b}[2J", "a file\nis missing");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let end = r"a file\nis missing reason=no\n2026-11-29T06:00:00Z  INFO forged\u{1b}[2J";
        assert!(text.trim_end().ends_with(end), "{text}");
    }
}
