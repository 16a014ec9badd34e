use reqwest::{Method, header::HeaderMap};
use serde_json::Value;

/// An answer, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub method: Method,
    pub path: String,
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// False when the connection broke in the middle of the body.
    pub is_whole: bool,
}

impl Answer {
    /// The JSON body; fails the test unless the status is `status`.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{} {}: {}", self.method, self.path, self.text());
        if self.body.is_empty() { Value::Null } else { serde_json::from_slice(&self.body).unwrap() }
    }

    /// The message of an error; fails the test unless the status is `status`.
    #[track_caller]
    pub fn error(&self, status: u16) -> String {
        let body = self.expect(status);
        body["error"].as_str().or(body["detail"].as_str()).unwrap().to_owned()
    }

    /// Fails the test unless the answer is 200 with exactly `bytes`.
    #[track_caller]
    pub fn expect_bytes(&self, bytes: &[u8]) {
        assert_eq!(self.status, 200, "{} {}: {}", self.method, self.path, self.text());
        assert!(self.is_whole && self.body == bytes, "{} bytes came", self.body.len());
    }

    #[track_caller]
    pub fn id(&self) -> i64 {
        self.expect(201)["id"].as_i64().unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}
