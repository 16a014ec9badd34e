//! Texts at the edges of pages, which files have once for each kind of page.

use std::collections::HashSet;

/// Those that were read.
#[derive(Debug, Default)]
pub(super) struct MarginTexts(HashSet<String>);

impl MarginTexts {
    /// Whether `text` is to be read: numbers of pages alone are not, and nothing is twice.
    pub(super) fn is_new(&mut self, text: &str) -> bool {
        text.chars().any(char::is_alphabetic) && self.0.insert(text.to_owned())
    }
}
