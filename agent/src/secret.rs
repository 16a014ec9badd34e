//! The agent token, in a type that never prints.

use std::fmt;

/// An agent token. `Debug` hides it and there is no `Display`: logs and error texts cannot carry it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token as it was issued; `None` when it is empty or cannot stand in a header.
    pub fn new(value: &str) -> Option<Self> {
        let value = value.trim();
        let usable = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_graphic());
        usable.then(|| Self(value.to_owned()))
    }

    /// The secret itself, for the configuration file alone.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The value of the `Authorization` header.
    pub fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_the_secret() {
        let token = Token::new("abcdef0123").unwrap();
        assert!(!format!("{token:?}").contains("abcdef"));
    }

    #[test]
    fn a_token_with_blanks_or_controls_inside_is_refused() {
        assert!(Token::new("").is_none());
        assert!(Token::new("ab cd").is_none());
        assert!(Token::new("ab\ncd").is_none());
        assert!(Token::new(" abcd\n").is_some());
    }
}
