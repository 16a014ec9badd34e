//! Progress bars on a terminal, and log lines that do not break them.

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use tracing_subscriber::fmt::MakeWriter;

const TEMPLATE: &str = "{prefix:>14} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";

/// Standard error, with bars below the log lines if it is a terminal.
#[derive(Debug, Clone, Default)]
pub struct Terminal {
    bars: Option<MultiProgress>,
}

impl Terminal {
    /// Looks whether standard error is a terminal.
    pub fn detect() -> Self {
        Self { bars: io::stderr().is_terminal().then(MultiProgress::new) }
    }

    /// A new bar; hidden if the output is not a terminal.
    pub fn bar(&self, label: &str) -> ProgressBar {
        let Some(bars) = &self.bars else { return ProgressBar::hidden() };
        let style = ProgressStyle::with_template(TEMPLATE).unwrap_or_else(|_| ProgressStyle::default_bar());
        bars.add(ProgressBar::new(0).with_style(style).with_prefix(label.to_owned()))
    }
}

/// Writes one log line.
#[derive(Debug)]
pub struct LogLine<'a>(&'a Terminal);

impl Write for LogLine<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.0.bars {
            Some(bars) => bars.suspend(|| io::stderr().write(bytes)),
            None => io::stderr().write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

impl<'a> MakeWriter<'a> for Terminal {
    type Writer = LogLine<'a>;

    fn make_writer(&'a self) -> Self::Writer {
        LogLine(self)
    }
}
