//! Marks of footnotes, in the text and before the note.

use signalbox_pdf::scripts;

/// The mark as a sign beside a word: "¹", else "[i]".
pub(super) fn mark(text: &str) -> String {
    let text = text.trim();
    match scripts::raised(text) {
        Some(raised) => raised,
        None if text.is_empty() => String::new(),
        None => format!("[{text}]"),
    }
}
