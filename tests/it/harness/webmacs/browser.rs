//! A page that shows live values.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures::{SinkExt, StreamExt, stream::SplitSink};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

use super::strict::Datapoint;
use crate::harness::{Client, client::encode, eventually, seconds};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// An open page.
pub struct Browser {
    sink: SplitSink<Socket, Message>,
    seen: Arc<Seen>,
    reading: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    newest: Mutex<HashMap<String, f64>>,
    points: Mutex<usize>,
    pongs: Mutex<usize>,
    complaints: Mutex<Vec<String>>,
}

impl Browser {
    /// Opens the page with the credential of `client`, and waits for the greeting.
    pub async fn open(client: &Client) -> Self {
        let token = encode(client.token.as_ref().unwrap());
        let url = client.socket_url(&format!("/ws/datapoints/stream?token={token}"));
        let (socket, _) = timeout(seconds(10), connect_async(url)).await.unwrap().unwrap();
        let (sink, mut stream) = socket.split();
        let greeting = timeout(seconds(10), stream.next()).await.unwrap().unwrap().unwrap();
        let greeting: Value = serde_json::from_str(greeting.to_text().unwrap()).unwrap();
        assert_eq!(greeting["type"], "connected", "{greeting}");
        assert!(greeting["message"].is_string(), "{greeting}");
        let seen = Arc::new(Seen::default());
        let for_reading = seen.clone();
        let reading = tokio::spawn(async move {
            while let Some(Ok(frame)) = stream.next().await {
                match frame {
                    Message::Text(text) => for_reading.take(&text),
                    Message::Binary(_) => for_reading.complain("a binary frame".to_owned()),
                    _ => {}
                }
            }
        });
        Self { sink, seen, reading }
    }

    /// Asks for a sign of life, and waits for it.
    pub async fn ping(&mut self) {
        let before = *self.seen.pongs.lock().unwrap();
        self.sink.send(Message::text(json!({"type": "ping"}).to_string())).await.unwrap();
        eventually(seconds(20), async || *self.seen.pongs.lock().unwrap() > before).await;
    }

    /// Waits until the page shows at least `values`.
    #[track_caller]
    pub fn until_shows(&self, values: &[(String, f64)]) -> impl Future<Output = ()> {
        eventually(seconds(30), async move || {
            let newest = self.seen.newest.lock().unwrap();
            values.iter().all(|(event, value)| newest.get(event) == Some(value))
        })
    }

    /// How many values came.
    pub fn points(&self) -> usize {
        *self.seen.points.lock().unwrap()
    }

    /// Whether the gateway has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.reading.is_finished()
    }

    /// Closes the page and fails the test when anything was not as it expects.
    pub fn close(self) {
        self.reading.abort();
        let complaints = self.seen.complaints.lock().unwrap().clone();
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}

impl Seen {
    fn take(&self, text: &str) {
        let message: Value = serde_json::from_str(text).unwrap();
        match message["type"].as_str() {
            Some("pong") => *self.pongs.lock().unwrap() += 1,
            Some("datapoints_batch") => self.merge(&message),
            _ => self.complain(format!("the unknown message {message}")),
        }
    }

    /// Of several values of an event in one message, the last one counts.
    fn merge(&self, message: &Value) {
        let points = match serde_json::from_value::<Vec<Datapoint>>(message["datapoints"].clone()) {
            Ok(points) if !points.is_empty() => points,
            read => return self.complain(format!("{message} is read as {read:?}")),
        };
        *self.points.lock().unwrap() += points.len();
        for point in points {
            if let Some(fault) = point.fault() {
                self.complain(fault);
            }
            self.newest.lock().unwrap().insert(point.event_public_id, point.value);
        }
    }

    fn complain(&self, what: String) {
        self.complaints.lock().unwrap().push(what);
    }
}
