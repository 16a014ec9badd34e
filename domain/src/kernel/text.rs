use super::Rejection;

/// Why a text was refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TextError {
    /// It holds U+0000, which PostgreSQL cannot store.
    #[error("must not contain NUL characters")]
    Nul,
    /// Nothing is left after trimming.
    #[error("must not be empty")]
    Empty,
    /// More characters than allowed.
    #[error("must be at most {0} characters long")]
    TooLong(usize),
}

/// `text` trimmed, checked for NUL and for at most `max` characters.
///
/// # Errors
/// [`TextError::Nul`] or [`TextError::TooLong`].
pub fn clean_text(text: &str, max: usize) -> Result<String, TextError> {
    let text = text.trim();
    if text.contains('\0') {
        return Err(TextError::Nul);
    }
    if text.chars().count() > max {
        return Err(TextError::TooLong(max));
    }
    Ok(text.to_owned())
}

/// Like [`clean_text`], for a field that must not be empty; the rejection names `field`.
///
/// # Errors
/// A [`Rejection`] of kind `Invalid` that names the fault of `field`.
pub fn required_text(field: &str, text: &str, max: usize) -> Result<String, Rejection> {
    non_empty_text(text, max).map_err(|error| Rejection::field(field, error))
}

/// Like [`clean_text`], for a text that must not be empty.
///
/// # Errors
/// [`TextError`].
pub fn non_empty_text(text: &str, max: usize) -> Result<String, TextError> {
    clean_text(text, max).and_then(|text| if text.is_empty() { Err(TextError::Empty) } else { Ok(text) })
}
