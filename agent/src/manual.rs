//! Shell completions and manual pages, generated from the same definitions as `--help`.

use clap::Command;
use clap_complete::{Shell, generate};
use clap_mangen::{Man, generate_to};
use std::{
    fs,
    io::{self, Write},
    path::Path,
};

/// Prints the completions of `program` for `shell`.
pub fn complete(mut program: Command, shell: Shell) -> io::Result<()> {
    let mut script = Vec::new();
    generate(shell, &mut program, "signalbox-agent", &mut script);
    io::stdout().write_all(&script)
}

/// Prints the manual page of `program`, or writes one for each of its commands to `folder`.
pub fn write(program: Command, folder: Option<&Path>) -> io::Result<()> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        Man::new(program).render(&mut page)?;
        return io::stdout().write_all(&page);
    };
    fs::create_dir_all(folder)?;
    generate_to(program, folder)
}
