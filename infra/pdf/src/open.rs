//! The word that is being read.

use std::ffi::c_int;

/// A word that is being read: its letters, and the number of each, which do not always count on.
#[derive(Default)]
pub(crate) struct Open {
    pub(crate) text: String,
    pub(crate) numbers: Vec<c_int>,
}

impl Open {
    pub(crate) fn push(&mut self, letter: char, number: c_int) {
        self.text.push(letter);
        self.numbers.push(number);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    pub(crate) fn first(&self) -> c_int {
        self.numbers.first().copied().unwrap_or_default()
    }

    pub(crate) fn last(&self) -> c_int {
        self.numbers.last().copied().unwrap_or_default()
    }

    pub(crate) fn letters(&self) -> impl Iterator<Item = (char, c_int)> {
        self.text.chars().zip(self.numbers.iter().copied())
    }

    /// The text, and an empty word again.
    pub(crate) fn take(&mut self) -> String {
        self.numbers.clear();
        std::mem::take(&mut self.text)
    }

    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
        self.text.clear();
    }
}
