//! The program `signalbox-agent`.

use clap::Parser;
use signalbox_agent::cli::Cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Fails only when a provider was chosen before, and this is the first thing that happens.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("The runtime cannot start: {error}.")),
    };
    match runtime.block_on(cli.execute()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

fn fail(message: &str) -> ExitCode {
    eprintln!("signalbox-agent: {message}");
    ExitCode::FAILURE
}
