//! SHA-256 digests: of bytes, and of a whole tree.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;

/// A SHA-256 as lower-case hex.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct Sha256Hex(String);

impl Sha256Hex {
    /// Reads 64 hex digits of either case.
    pub fn parse(text: &str) -> Option<Self> {
        let valid = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self(text.to_ascii_lowercase()))
    }

    /// The digest of bytes that are at hand.
    pub fn of(bytes: &[u8]) -> Self {
        Self(hex::encode(Sha256::digest(bytes)))
    }

    /// The digest of the bytes in `hasher`.
    pub fn finish(hasher: Sha256) -> Self {
        Self(hex::encode(hasher.finalize()))
    }

    /// The 64 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Sha256Hex {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not a SHA-256 in hex")
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Debug for Sha256Hex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// One entry of a transfer: a file, or an empty directory (its name ends in `/`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Entry {
    pub name: String,
    pub size: u64,
    pub sha256: Sha256Hex,
}

/// The digest of a tree: of one line per entry, in the order of the names' bytes.
pub fn tree_digest(entries: &[Entry]) -> Sha256Hex {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|left, right| left.name.as_bytes().cmp(right.name.as_bytes()));
    let mut hasher = Sha256::new();
    for entry in sorted {
        hasher.update(format!("{}  {}\n", entry.sha256, entry.name));
    }
    Sha256Hex::finish(hasher)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn entry(name: &str, bytes: &[u8]) -> Entry {
        Entry { name: name.into(), size: bytes.len() as u64, sha256: Sha256Hex::of(bytes) }
    }

    #[test]
    fn an_empty_tree_and_an_empty_directory_hash_as_zero_bytes() {
        assert_eq!(tree_digest(&[]).as_str(), EMPTY);
        assert_eq!(entry("d/", b"").sha256.as_str(), EMPTY);
    }

    #[test]
    fn the_order_of_entries_does_not_matter_and_names_are_sorted_by_bytes() {
        let (upper, lower, accent) = (entry("B", b"1"), entry("a", b"2"), entry("\u{e9}", b"3"));
        let lines = format!("{}  B\n{}  a\n{}  \u{e9}\n", upper.sha256, lower.sha256, accent.sha256);
        assert_eq!(tree_digest(&[accent, lower, upper]), Sha256Hex::of(lines.as_bytes()));
    }

    #[test]
    fn hex_is_checked_and_lowered() {
        assert_eq!(Sha256Hex::parse(&EMPTY.to_uppercase()).unwrap().as_str(), EMPTY);
        assert!(Sha256Hex::parse("e3b0").is_none());
        assert!(Sha256Hex::parse(&"g".repeat(64)).is_none());
    }
}
