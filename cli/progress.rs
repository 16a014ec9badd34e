//! The progress of a long command, on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on a terminal; nothing elsewhere. `label` may be empty.
pub(crate) fn bar(label: &str, unit: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(&format!(
        "{{prefix}}[{{bar:30}}] {{human_pos}}/{{human_len}} {unit} {{per_sec}} {{eta}}"
    ));
    let prefix = if label.is_empty() { String::new() } else { format!("{label:<12} ") };
    ProgressBar::new(0).with_style(style.unwrap_or(ProgressStyle::default_bar())).with_prefix(prefix)
}

/// Moves `bar` to `done` of `all`.
pub(crate) fn show(bar: &ProgressBar, done: u64, all: u64) {
    bar.set_length(all);
    bar.set_position(done);
}
