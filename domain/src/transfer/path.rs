use crate::kernel::Rejection;

/// Bytes of a whole path or name: `PATH_MAX` of Linux.
pub const MAX_PATH_BYTES: usize = 4096;
/// Bytes of one part of a path: `NAME_MAX` of Linux file systems.
pub const MAX_PART_BYTES: usize = 255;

/// Why a path or the name of an entry is refused.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PathError {
    /// It has no character.
    #[error("must not be empty")]
    Empty,
    /// It contains U+0000, which neither PostgreSQL nor a file system stores.
    #[error("must not contain NUL characters")]
    Nul,
    /// It exceeds [`MAX_PATH_BYTES`].
    #[error("must be at most {MAX_PATH_BYTES} bytes long")]
    TooLong,
    /// One of its parts exceeds [`MAX_PART_BYTES`].
    #[error("must have parts of at most {MAX_PART_BYTES} bytes each")]
    PartTooLong,
}

/// Checks the lengths of `path`, whose parts are separated by one of `separators`. White space is part of a path.
///
/// # Errors
/// [`PathError`].
pub fn check_path(path: &str, separators: &[char]) -> Result<(), PathError> {
    if path.is_empty() {
        Err(PathError::Empty)
    } else if path.contains('\0') {
        Err(PathError::Nul)
    } else if path.len() > MAX_PATH_BYTES {
        Err(PathError::TooLong)
    } else if path.split(separators).any(|part| part.len() > MAX_PART_BYTES) {
        Err(PathError::PartTooLong)
    } else {
        Ok(())
    }
}

/// Checks a path on an agent, which must not be blank. An agent may run on Windows, so both separators end a part.
pub(super) fn valid_path(field: &str, path: &str) -> Result<(), Rejection> {
    let checked = if path.trim().is_empty() { Err(PathError::Empty) } else { check_path(path, &['/', '\\']) };
    checked.map_err(|error| rejected(field, &error))
}

/// Checks the name of an entry, whose parts are separated by `/`.
pub(super) fn valid_name(field: &str, name: &str) -> Result<(), Rejection> {
    check_path(name, &['/']).map_err(|error| rejected(field, &error))
}

fn rejected(field: &str, error: &PathError) -> Rejection {
    Rejection::field(field, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_in_bytes_per_part_and_in_all() {
        let part = |bytes: usize| format!("{}{}", "ä".repeat(bytes / 2), "a".repeat(bytes % 2));
        for (path, expected) in [
            (String::new(), Err(PathError::Empty)),
            (" ".to_owned(), Ok(())),
            ("a\0b".to_owned(), Err(PathError::Nul)),
            (part(255), Ok(())),
            (part(256), Err(PathError::PartTooLong)),
            (format!("{}/", part(255)).repeat(16), Ok(())),
            (format!("{}/", part(255)).repeat(16) + "a", Err(PathError::TooLong)),
            (format!("C:\\{}\\{}", part(255), part(255)), Ok(())),
        ] {
            assert_eq!(check_path(&path, &['/', '\\']), expected, "{path}");
        }
    }
}
