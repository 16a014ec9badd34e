//! `signalbox completions` and `signalbox man`: shell completions and manual pages. Both are generated from the same
//! definitions as `--help`.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use clap_mangen::{Man, generate_to};

use crate::Cli;

const PROGRAM: &str = "signalbox";

/// The shell to complete for.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell, e.g. `signalbox completions bash > /etc/bash_completion.d/signalbox`.
    #[arg(value_enum)]
    shell: Shell,
}

/// Where manual pages go.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// Folder for a page of each command, e.g. /usr/local/share/man/man1; standard output and one page if absent.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Prints the completions of a shell.
pub(crate) fn complete(args: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    generate(args.shell, &mut Cli::command(), PROGRAM, &mut script);
    io::stdout().write_all(&script).context("standard output is closed")
}

/// Prints the manual page, or writes one for each command.
pub(crate) fn write(args: &ManArgs) -> anyhow::Result<()> {
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        Man::new(Cli::command()).render(&mut page)?;
        return io::stdout().write_all(&page).context("standard output is closed");
    };
    fs::create_dir_all(folder)
        .and_then(|()| generate_to(Cli::command(), folder))
        .with_context(|| format!("the pages cannot be written to {}", folder.display()))
}
