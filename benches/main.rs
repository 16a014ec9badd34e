//! Measures Signalbox on this machine, beside other programs in the same run.
//!
//!     cargo bench -p signalbox                        all of them, small
//!     cargo bench -p signalbox -- append rebuild      some of them
//!     BENCH_EVENTS=1000000 cargo bench -p signalbox -- rebuild
//!
//! Each prints a table with medians. Sizes come from the environment, see the head of each module.

#![expect(clippy::print_stdout, reason = "the tables are its purpose")]

mod append;
mod commands;
mod files;
mod load;
mod log;
mod memory;
mod monitoring;
mod plain_server;
mod polling;
mod rebuild;
mod report;
mod size;
#[allow(dead_code, unused_imports, reason = "shared with the chaos test, which uses other parts")]
mod system;
mod webhooks;
mod workers;

use std::{env, process::ExitCode};

use anyhow::bail;

/// All of them, in the order in which they run.
const BENCHES: [&str; 10] = [
    "commands",
    "append",
    "rebuild",
    "files",
    "memory",
    "polling",
    "monitoring",
    "webhooks",
    "log",
    "workers",
];

fn main() -> ExitCode {
    // Cargo adds the flag by itself.
    let arguments: Vec<_> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    if let [first, address, database] = arguments
        && first == plain_server::ARGUMENT
    {
        return runtime.block_on(plain_server::serve(address, database));
    }
    let names: Vec<_> = arguments.iter().map(String::as_str).collect();
    if let Some(unknown) = names.iter().find(|name| !BENCHES.contains(name)) {
        bail!("there is no bench {unknown}: choose among {}", BENCHES.join(", "));
    }
    let chosen = BENCHES.into_iter().filter(|name| names.is_empty() || names.contains(name));
    // On this thread, because the processes that they start end with the thread that started them.
    runtime.block_on(async {
        for name in chosen {
            match name {
                "commands" => commands::run().await?,
                "append" => append::run().await?,
                "rebuild" => rebuild::run().await?,
                "files" => files::run().await?,
                "memory" => memory::run().await?,
                "polling" => polling::run().await?,
                "webhooks" => webhooks::run().await?,
                "log" => log::run().await?,
                "workers" => workers::run().await?,
                _ => monitoring::run().await?,
            }
        }
        Ok(())
    })
}
