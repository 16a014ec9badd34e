use std::{net::IpAddr, str::FromStr};

use url::{Host, Url};

/// Longest address of a target, in characters.
const MAX_LENGTH: usize = 2048;

/// The target of a request: `http` or `https`, a host, no credentials. Decimal, octal and hexadecimal forms of an
/// IPv4 address are that address (WHATWG URL).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target(Url);

/// Why a text is not a [`Target`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    /// Not an absolute URL.
    #[error("must be a URL that starts with http:// or https:// and names a host")]
    Malformed,
    /// Another scheme.
    #[error("must begin with http:// or https://")]
    Scheme,
    /// The URL is visible to many users, so it must not contain a secret.
    #[error("must not contain a user name or password: sign with a secret instead")]
    Credentials,
    /// Longer than allowed.
    #[error("must be at most 2048 characters long")]
    TooLong,
}

impl Target {
    /// The address as it was normalised.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The IP address, if the host is written as one.
    pub fn literal(&self) -> Option<IpAddr> {
        match self.0.host()? {
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
            Host::Domain(_) => None,
        }
    }

    /// The host as it was written.
    pub fn host(&self) -> &str {
        self.0.host_str().unwrap_or_default()
    }

    pub(crate) fn url(&self) -> Url {
        self.0.clone()
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if text.chars().count() > MAX_LENGTH {
            return Err(InvalidTarget::TooLong);
        }
        let url = Url::parse(text).map_err(|_| InvalidTarget::Malformed)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(InvalidTarget::Scheme);
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(InvalidTarget::Malformed);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(InvalidTarget::Credentials);
        }
        Ok(Self(url))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        for spelling in [
            "127.0.0.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "0177.0.0.1",
            "017700000001",
            "127.1",
            "127.0.1",
            "0x7F.0.0x0.1",
            "127.0.0.1.",
            "%31%32%37.0.0.1",
            "１２７.０.０.１",
            "①②⑦.0.0.1",
        ] {
            let target: Target = format!("http://{spelling}:8080/hook").parse().unwrap();
            assert_eq!(target.literal(), Some("127.0.0.1".parse().unwrap()), "{spelling}");
        }
        for spelling in
            ["[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[64:ff9b::7f00:1]"]
        {
            let target: Target = format!("https://{spelling}/").parse().unwrap();
            assert!(target.literal().is_some(), "{spelling}");
        }
        assert_eq!("http://localhost/".parse::<Target>().unwrap().literal(), None);
    }

    #[test]
    fn what_is_no_target_is_refused_with_the_reason() {
        use InvalidTarget::{Credentials, Malformed, Scheme, TooLong};
        for (text, expected) in [
            ("", Malformed),
            ("hook", Malformed),
            ("//example.org/", Malformed),
            ("http://", Malformed),
            ("http://[::1", Malformed),
            ("http://256.0.0.1/", Malformed),
            ("ftp://example.org/", Scheme),
            ("file:///etc/passwd", Scheme),
            ("gopher://example.org/", Scheme),
            ("http://user@example.org/", Credentials),
            ("http://user:secret@example.org/", Credentials),
            (&format!("http://example.org/{}", "x".repeat(2048)), TooLong),
        ] {
            assert_eq!(text.parse::<Target>().unwrap_err(), expected, "{text}");
        }
    }
}
