use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Longest version, in characters.
pub const MAX_LENGTH: usize = 50;

/// The version of a release: three numbers, in the order of semantic versioning. As text it holds digits and dots only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct ReleaseVersion([u64; 3]);

/// A text that is not a version.
#[derive(Debug, thiserror::Error)]
#[error("must be three numbers with dots between them and no leading zeros, such as 1.4.0")]
pub struct InvalidVersion;

impl FromStr for ReleaseVersion {
    type Err = InvalidVersion;

    fn from_str(text: &str) -> Result<Self, InvalidVersion> {
        let parts: Vec<_> = text.split('.').map(number).collect::<Option<_>>().ok_or(InvalidVersion)?;
        match <[u64; 3]>::try_from(parts) {
            Ok(numbers) if text.len() <= MAX_LENGTH => Ok(Self(numbers)),
            _ => Err(InvalidVersion),
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    if is_plain { text.parse().ok() } else { None }
}

impl fmt::Display for ReleaseVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl TryFrom<String> for ReleaseVersion {
    type Error = InvalidVersion;

    fn try_from(text: String) -> Result<Self, InvalidVersion> {
        text.parse()
    }
}

impl From<ReleaseVersion> for String {
    fn from(version: ReleaseVersion) -> Self {
        version.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_by_their_numbers() {
        let mut sorted: Vec<ReleaseVersion> =
            ["1.10.0", "1.9.9", "0.0.0", "2.0.0", "1.9.10"].map(|text| text.parse().unwrap()).into();
        sorted.sort();
        let texts: Vec<_> = sorted.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["0.0.0", "1.9.9", "1.9.10", "1.10.0", "2.0.0"]);
    }

    #[test]
    fn what_is_no_version_is_refused() {
        let long = format!("1.2.{}", "9".repeat(60));
        for text in [
            "",
            "1",
            "1.2",
            "1.2.3.4",
            "v1.2.3",
            "1.2.x",
            "01.2.3",
            "1.2.03",
            "1..3",
            "-1.2.3",
            "+1.2.3",
            " 1.2.3",
            "1.2.3-rc.1",
            "../1.2.3",
            "1.2.3/..",
            "18446744073709551616.0.0",
            "１.2.3",
            &long,
        ] {
            assert!(text.parse::<ReleaseVersion>().is_err(), "{text}");
        }
    }
}
