use std::io::IsTerminal;

use signalbox_config::{Log, LogFormat};
use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer,
    field::RecordFields,
    fmt::{
        self, FormatFields, MakeWriter,
        format::{DefaultFields, Writer},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
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
            registry.with(text(colours, std::io::stderr)).try_init()?;
        }
        LogFormat::Json => registry.with(fmt::layer().json().with_writer(std::io::stderr)).try_init()?,
    }
    Ok(())
}

fn text<S: Subscriber + for<'span> LookupSpan<'span>>(
    colours: bool,
    writer: impl for<'writer> MakeWriter<'writer> + 'static,
) -> impl Layer<S> {
    fmt::layer().with_ansi(colours).fmt_fields(OneLine).with_writer(writer)
}

/// Writes the fields of an entry on one line: a text that a user chose could otherwise look like an entry of its own.
struct OneLine;

impl<'writer> FormatFields<'writer> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> std::fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        text.chars().try_for_each(|letter| match letter.is_control() {
            true => write!(writer, "{}", letter.escape_default()),
            false => writer.write_char(letter),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
    };

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
    fn an_entry_is_one_line_whatever_a_user_wrote() {
        let written = Shared::default();
        let writer = written.clone();
        let log = tracing_subscriber::registry().with(text(false, move || writer.clone()));
        tracing::subscriber::with_default(log, || {
            tracing::warn!(name = %"no\n2026-11-29T06:00:00Z  INFO forged\u{1b}[2J", "a channel\nis missing");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let end = r"a channel\nis missing name=no\n2026-11-29T06:00:00Z  INFO forged\u{1b}[2J";
        assert!(text.trim_end().ends_with(end), "{text}");
    }
}
