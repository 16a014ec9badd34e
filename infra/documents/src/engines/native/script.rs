use std::borrow::Cow;

use signalbox_pdf::scripts;

/// Set higher or lower than the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Script {
    Raised,
    Lowered,
}

impl Script {
    /// By the word that a format has for it.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "sup" | "super" | "superscript" => Some(Self::Raised),
            "sub" | "subscript" => Some(Self::Lowered),
            _ => None,
        }
    }

    /// `text` with its digits raised or lowered; other letters have no such form and stay.
    pub(super) fn set(script: Option<Self>, text: &str) -> Cow<'_, str> {
        let set = match script {
            Some(Self::Raised) => scripts::raised(text.trim()),
            Some(Self::Lowered) => scripts::lowered(text.trim()),
            None => None,
        };
        set.map_or(Cow::Borrowed(text), Cow::Owned)
    }
}
