//! The gateway's address and the endpoints below it.

use crate::protocol::TransferId;
use reqwest::Url;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AddressError {
    #[error("The gateway address '{0}' is not a URL; write it like http://127.0.0.1:8080.")]
    NotAUrl(String),
    #[error("The gateway address must begin with http:// or https://, not '{0}://'.")]
    Scheme(String),
    #[error("The gateway address must not hold a user name, a password, a query or a fragment.")]
    Extras,
}

/// The base address of a gateway, without a trailing slash or `/api`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address(Url);

impl Address {
    /// Reads an address such as `https://files.example.org`; a trailing `/api` is dropped.
    pub fn parse(text: &str) -> Result<Self, AddressError> {
        let mut url = Url::parse(text.trim()).map_err(|_| AddressError::NotAUrl(text.trim().to_owned()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(AddressError::Scheme(url.scheme().to_owned()));
        }
        let extras = !url.username().is_empty() || url.password().is_some();
        if extras || url.query().is_some() || url.fragment().is_some() {
            return Err(AddressError::Extras);
        }
        let path = url.path().trim_end_matches('/');
        let path = path.strip_suffix("/api").unwrap_or(path).to_owned();
        url.set_path(&path);
        Ok(Self(url))
    }

    /// The address as people write it.
    pub fn as_text(&self) -> &str {
        self.0.as_str().trim_end_matches('/')
    }

    /// Host and port, to find out which local address leads there.
    pub fn host_and_port(&self) -> Option<(String, u16)> {
        Some((self.0.host_str()?.trim_matches(['[', ']']).to_owned(), self.0.port_or_known_default()?))
    }

    /// The WebSocket endpoint, `ws://` or `wss://` after the base's scheme.
    pub fn websocket(&self) -> String {
        let endpoint = self.endpoint("/ws/agent");
        endpoint.as_str().replacen("http", "ws", 1)
    }

    /// One of the agent calls, for instance `connect`.
    pub fn agent(&self, call: &str) -> Url {
        self.endpoint(&format!("/api/agent/{call}"))
    }

    /// The long poll, which the gateway holds for up to `seconds`.
    pub fn poll(&self, seconds: u64) -> Url {
        let mut url = self.agent("poll");
        url.set_query(Some(&format!("timeout={seconds}")));
        url
    }

    /// One of the calls of a transfer's bytes: `upload`, `download` or `manifest`.
    pub fn file(&self, id: TransferId, call: &str, filename: Option<&str>) -> Url {
        let mut url = self.endpoint(&format!("/api/files/{id}/{call}"));
        if let Some(name) = filename {
            url.query_pairs_mut().append_pair("filename", name);
            // A blank is written `+` there, which not every reader of URLs takes for a blank.
            let query = url.query().unwrap_or_default().replace('+', "%20");
            url.set_query(Some(&query));
        }
        url
    }

    fn endpoint(&self, path: &str) -> Url {
        let mut url = self.0.clone();
        url.set_path(&format!("{}{path}", self.0.path().trim_end_matches('/')));
        url
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text).unwrap()
    }

    #[test]
    fn slash_and_api_suffix_make_no_difference() {
        for text in ["http://h:8080", "http://h:8080/", "http://h:8080/api", "http://h:8080/api/"] {
            assert_eq!(address(text).agent("connect").as_str(), "http://h:8080/api/agent/connect");
            assert_eq!(address(text).as_text(), "http://h:8080");
        }
    }

    #[test]
    fn a_path_prefix_is_kept() {
        assert_eq!(address("https://h/signalbox/").websocket(), "wss://h/signalbox/ws/agent");
    }

    #[test]
    fn file_names_are_escaped() {
        let url = address("http://h").file(TransferId(7), "upload", Some("a b+c/ü&.txt"));
        assert_eq!(url.query(), Some("filename=a%20b%2Bc%2F%C3%BC%26.txt"));
    }

    #[test]
    fn odd_addresses_are_refused_with_a_sentence() {
        assert_eq!(Address::parse("ftp://h"), Err(AddressError::Scheme("ftp".into())));
        assert!(matches!(Address::parse("localhost"), Err(AddressError::NotAUrl(_))));
        assert_eq!(Address::parse("http://u:p@h"), Err(AddressError::Extras));
    }
}
