use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A SHA-256 digest as 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Sha256Hex(String);

/// A text that is not a SHA-256 digest.
#[derive(Debug, thiserror::Error)]
#[error("must be a SHA-256 digest of 64 hex digits")]
pub struct InvalidSha256;

impl Sha256Hex {
    /// The digest whose raw bytes these are.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(hex::encode(bytes))
    }

    /// The digest as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Sha256Hex {
    type Err = InvalidSha256;

    fn from_str(text: &str) -> Result<Self, InvalidSha256> {
        let well_formed = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        well_formed.then(|| Self(text.to_ascii_lowercase())).ok_or(InvalidSha256)
    }
}

impl TryFrom<String> for Sha256Hex {
    type Error = InvalidSha256;

    fn try_from(text: String) -> Result<Self, InvalidSha256> {
        text.parse()
    }
}

impl From<Sha256Hex> for String {
    fn from(digest: Sha256Hex) -> Self {
        digest.0
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
