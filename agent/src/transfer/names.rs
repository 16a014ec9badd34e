//! Length limits of paths and names: those of Linux and the gateway.

use super::TransferError;

const MAX_BYTES: usize = 4096;
const MAX_PART_BYTES: usize = 255;
/// Characters of a refused name that its error shows.
const SHOWN_CHARS: usize = 60;

/// Refuses a name that no file system takes, before anything is read or written.
pub fn check_length(name: &str) -> Result<(), TransferError> {
    if name.len() <= MAX_BYTES && name.split('/').all(|part| part.len() <= MAX_PART_BYTES) {
        return Ok(());
    }
    Err(TransferError::NameTooLong(name.chars().take(SHOWN_CHARS).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_counted_in_bytes() {
        let part = format!("{}x", "\u{fc}".repeat(127));
        assert!(check_length(&part).is_ok());
        assert!(check_length(&format!("{part}x")).is_err());
        assert!(check_length(&format!("{part}/").repeat(16)).is_ok());
        assert!(check_length(&(format!("{part}/").repeat(16) + "x")).is_err());
    }
}
