use std::io::IsTerminal;

use signalbox_config::{Log, LogFormat};
use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt, util::SubscriberInitExt};

/// Why nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error("log.filter is not valid: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// It was started before.
    #[error("logging was started twice")]
    Twice(#[from] tracing_subscriber::util::TryInitError),
}

/// Starts logging as `log` says. Call it once, first.
///
/// # Errors
/// [`TelemetryError`] when the filter is wrong.
pub fn start(log: &Log) -> Result<(), TelemetryError> {
    let registry = tracing_subscriber::registry().with(EnvFilter::try_new(&log.filter)?);
    // Colours are for people who watch, not for files.
    let colours = std::io::stderr().is_terminal();
    match log.format {
        LogFormat::Text => {
            registry.with(fmt::layer().with_ansi(colours).with_writer(std::io::stderr)).try_init()?;
        }
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(std::io::stderr)).try_init()?,
    }
    Ok(())
}
