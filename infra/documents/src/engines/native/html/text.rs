//! Text as browsers show it.

use scraper::ElementRef;

pub(super) fn text_of(element: ElementRef<'_>) -> String {
    let mut text = String::new();
    element.text().for_each(|piece| push_collapsed(&mut text, piece));
    text.trim().to_owned()
}

/// Appends what stands in a box of its own.
pub(super) fn push_apart(text: &mut String, piece: &str) {
    if piece.is_empty() {
        return;
    }
    if !text.is_empty() && !text.ends_with([' ', '\n']) {
        text.push(' ');
    }
    push_collapsed(text, piece);
    text.push(' ');
}

/// Appends text with white space collapsed, as browsers show it.
pub(super) fn push_collapsed(text: &mut String, piece: &str) {
    for letter in piece.chars() {
        if !matches!(letter, ' ' | '\t' | '\n' | '\r' | '\u{C}') {
            text.push(letter);
        } else if !text.ends_with([' ', '\n']) && !text.is_empty() {
            text.push(' ');
        }
    }
}
