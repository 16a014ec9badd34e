//! Shell completions and manual pages, generated from the same definitions as `--help`.

use crate::cli::Cli;
use clap::CommandFactory;
use clap_complete::{Shell, generate};
use clap_mangen::{Man, generate_to};
use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// Prints the completions of `shell`.
pub fn complete(shell: Shell) -> io::Result<()> {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), "signalbox-agent", &mut script);
    io::stdout().write_all(&script)
}

/// Prints the manual page, or writes one for each command to `folder`.
pub fn write(folder: Option<&Path>) -> io::Result<()> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        Man::new(Cli::command()).render(&mut page)?;
        return io::stdout().write_all(&page);
    };
    fs::create_dir_all(folder)?;
    generate_to(Cli::command(), folder)
}
