//! Server-Sent Events, read as they arrive.

use serde_json::Value;
use tokio::time::timeout;

use super::{Client, seconds};

/// A stream, and the bytes of it that are not read yet.
pub struct EventStream {
    response: reqwest::Response,
    text: String,
}

/// A message of a stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    pub id: i64,
    pub name: Option<String>,
    /// Null in a comment.
    pub data: Value,
}

impl EventStream {
    pub async fn open(client: &Client, path: &str, last_event_id: Option<i64>) -> Self {
        let mut request = client.stream(path);
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next message; none when the stream has ended.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let message = read(message);
                self.text = rest.to_owned();
                return Some(message);
            }
            let chunk = timeout(seconds(30), self.response.chunk()).await.expect("no message");
            self.text.push_str(std::str::from_utf8(&chunk.ok()??).unwrap());
        }
    }

    /// Waits until the stream ends.
    pub async fn ended(&mut self) {
        let ended = async { while self.next().await.is_some() {} };
        timeout(seconds(20), ended).await.expect("the stream continues");
    }
}

fn read(message: &str) -> Message {
    let field = |name: &str| message.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    Message {
        id: field("id:").unwrap().parse().unwrap(),
        name: field("event:").map(str::to_owned),
        data: field("data:").map_or(Value::Null, |data| serde_json::from_str(data).unwrap()),
    }
}
