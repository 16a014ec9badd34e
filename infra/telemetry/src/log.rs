use std::io::IsTerminal;

use signalbox_config::{Log, LogFormat};
use tracing::field::Field;
use tracing_subscriber::{
    EnvFilter,
    field::MakeExt as _,
    fmt::{
        self,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

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
            let layer = fmt::layer().with_ansi(colours).fmt_fields(debug_fn(write_field).delimited(" "));
            registry.with(layer.with_writer(std::io::stderr)).try_init()?;
        }
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(std::io::stderr)).try_init()?,
    }
    Ok(())
}

/// Writes a field of an entry on one line: a text that a user chose could otherwise look like an entry of its own.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn std::fmt::Debug) -> std::fmt::Result {
    if field.name() != "message" {
        write!(writer, "{}=", field.name())?;
    }
    format!("{value:?}").chars().try_for_each(|letter| match letter.is_control() {
        true => write!(writer, "{}", letter.escape_default()),
        false => writer.write_char(letter),
    })
}
