//! `signalbox log`: reads, exports, imports and verifies the log.

mod carry;
mod chain;
mod read;

use std::process::ExitCode;

use clap::Subcommand;
use signalbox_config::Config;
use signalbox_database::Class;

use crate::setup;

/// Commands for the log.
#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Print the newest events, and follow new ones.
    Tail(read::TailArgs),
    /// Print one event, or one stream as it was.
    Show(read::ShowArgs),
    /// Write both logs, and the tables that cannot be derived from them, as lines of JSON.
    ///
    /// The archive holds hashes of passwords, sealed secrets and the keys that open them: keep it like a backup. Files and texts
    /// of documents are not in it.
    Export(carry::ExportArgs),
    /// Read an archive into an empty system. Read models follow when it serves.
    Import(carry::ImportArgs),
    /// Print the end of the hash chain, to be published.
    Head(chain::HeadArgs),
    /// Compare the log with its hash chain, and with a head that was published.
    ///
    /// The exit status is 0 when the log is unchanged, 3 when it is not, and 1 when the check failed.
    Verify(chain::VerifyArgs),
}

/// Runs a command on the log.
pub(crate) async fn run(mut config: Config, command: LogCommand) -> anyhow::Result<ExitCode> {
    if let LogCommand::Import(args) = command {
        return carry::import_into(&mut config, &args).await.map(|()| ExitCode::SUCCESS);
    }
    let pool = setup::database_for(&config, Class::Maintenance).await?;
    match command {
        LogCommand::Tail(args) => read::tail(&pool, args).await,
        LogCommand::Show(args) => read::show(&pool, &args).await,
        LogCommand::Export(args) => carry::export_from(&pool, &args).await,
        LogCommand::Head(args) => chain::head(&pool, &args).await,
        LogCommand::Verify(args) => return chain::verify(&pool, &args).await,
        LogCommand::Import(_) => Ok(()),
    }
    .map(|()| ExitCode::SUCCESS)
}
