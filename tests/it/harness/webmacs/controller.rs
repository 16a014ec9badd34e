//! The program beside the machines: it logs in, learns the events, sends values each tick and reads the newest ones.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use futures::{SinkExt, StreamExt, stream::SplitSink};
use reqwest::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    task::JoinHandle,
    time::{sleep, timeout},
};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async, tungstenite::Message};

use super::strict::{Datapoint, Event, Mapping, Page, Plugin, leading_number};
use crate::harness::{Answer, Client, client::encode, seconds};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Tries of a call before it is given up.
const TRIES: u64 = 3;

/// The controller's credentials.
#[derive(Debug, Clone)]
pub enum Account {
    Password { email: String, password: String },
    ApiToken(String),
}

/// How it sends values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Telemetry {
    Http,
    Socket,
}

/// A running controller.
pub struct Controller {
    http: Client,
    account: Account,
    token: Mutex<String>,
    /// Items of one batch at most.
    max_batch: usize,
    pub events: Vec<Event>,
    socket: Option<tokio::sync::Mutex<SplitSink<Socket, Message>>>,
    reading: Option<JoinHandle<()>>,
    complaints: Arc<Mutex<Vec<String>>>,
    logins: Mutex<usize>,
}

impl Controller {
    /// Starts against the gateway that `http` speaks to: logs in, reads the events, opens its socket, says so.
    pub async fn start(http: Client, account: Account, telemetry: Telemetry) -> Self {
        let mut controller = Self {
            http: http.anonymous(),
            token: Mutex::default(),
            max_batch: 100,
            events: Vec::new(),
            socket: None,
            reading: None,
            complaints: Arc::default(),
            logins: Mutex::default(),
            account,
        };
        controller.log_in().await;
        // It never asks for a second page.
        let page: Page<Event> = controller.read("/api/v1/events").await;
        controller.events = page.data;
        if telemetry == Telemetry::Socket {
            controller.open_socket().await;
        }
        controller.note("Controller started", "info").await;
        controller
    }

    /// Makes the simulated plant, as on the first start against an empty system.
    pub async fn seed(&self) {
        let plugins: Page<Plugin> = self.read("/api/v1/plugins").await;
        let events: Page<Event> = self.read("/api/v1/events").await;
        if plugins.data.iter().any(|plugin| plugin.enabled) || !events.data.is_empty() {
            return;
        }
        let plant = json!({"plugin_id": "simulated", "instance_name": "Simulated Device", "demo_mode": true,
            "enabled": true});
        self.call(Method::POST, "/api/v1/plugins", Some(plant)).await;
    }

    /// The enabled plugin instances with their channels, as it looks at them every ten seconds.
    pub async fn plugins(&self) -> Vec<(Plugin, Vec<Mapping>)> {
        let page: Page<Plugin> = self.read("/api/v1/plugins").await;
        let mut found = Vec::new();
        for plugin in page.data.into_iter().filter(|plugin| plugin.enabled) {
            // A bare array.
            let channels = self.read(&format!("/api/v1/plugins/{}/channels", plugin.public_id)).await;
            found.push((plugin, channels));
        }
        found
    }

    /// One tick: sends `values` of events, in chunks, and returns the newest value of every event.
    pub async fn tick(&self, values: &[(String, f64)]) -> HashMap<String, f64> {
        let items = values.iter().map(|(id, value)| json!({"value": value, "event_public_id": id}));
        let items: Vec<_> = items.collect();
        for chunk in items.chunks(self.max_batch) {
            let batch = json!({ "datapoints": chunk });
            match &self.socket {
                Some(socket) => {
                    let frame = Message::text(batch.to_string());
                    timeout(seconds(10), socket.lock().await.send(frame)).await.unwrap().unwrap();
                }
                None => self.send_batch(batch, chunk.len()).await,
            }
        }
        self.latest().await
    }

    /// Sets one output, as its valve rules do.
    pub async fn set(&self, event: &str, value: f64) {
        let body = json!({"event_public_id": event, "value": value});
        self.call(Method::POST, "/api/v1/datapoints", Some(body)).await;
    }

    /// The newest value of every event, as it applies them to its outputs.
    pub async fn latest(&self) -> HashMap<String, f64> {
        // A bare array.
        let latest: Vec<Datapoint> = self.read("/api/v1/datapoints/latest").await;
        latest.iter().filter_map(Datapoint::fault).for_each(|fault| self.complain(fault));
        let count = latest.len();
        let values: HashMap<_, _> =
            latest.into_iter().map(|point| (point.event_public_id, point.value)).collect();
        if values.len() != count {
            self.complain(format!("{count} newest values of {} events", values.len()));
        }
        values
    }

    /// A client with the credential that it has now.
    pub fn client(&self) -> Client {
        self.http.with_token(&self.token.lock().unwrap().clone())
    }

    /// How often it has logged in.
    pub fn logins(&self) -> usize {
        *self.logins.lock().unwrap()
    }

    /// Ends the controller and fails the test when anything was not as it expects.
    pub async fn stop(self) {
        self.note("Controller stopped", "warning").await;
        if let Some(socket) = &self.socket {
            socket.lock().await.close().await.unwrap();
        }
        if let Some(reading) = self.reading {
            timeout(seconds(10), reading).await.expect("the gateway closes the socket too").unwrap();
        }
        let complaints = self.complaints.lock().unwrap().clone();
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    async fn send_batch(&self, batch: Value, count: usize) {
        let answer = self.call(Method::POST, "/api/v1/datapoints/batch", Some(batch)).await;
        if leading_number(&answer) != Some(count) {
            self.complain(format!("a batch of {count} was answered by {answer}"));
        }
    }

    async fn note(&self, content: &str, kind: &str) {
        let entry = json!({"content": content, "logging_type": kind});
        self.call(Method::POST, "/api/v1/logging", Some(entry)).await;
    }

    async fn log_in(&self) {
        let token = match &self.account {
            Account::ApiToken(token) => token.clone(),
            Account::Password { email, password } => {
                let credentials = json!({"email": email, "password": password});
                let answer = self.http.post("/api/v1/auth/login", credentials).await.expect(200);
                *self.logins.lock().unwrap() += 1;
                // It reads nothing else.
                answer["access_token"].as_str().unwrap().to_owned()
            }
        };
        *self.token.lock().unwrap() = token;
    }

    async fn open_socket(&mut self) {
        let token = encode(&self.token.lock().unwrap());
        let url = self.http.socket_url(&format!("/ws/controller/telemetry?token={token}"));
        let (socket, _) = timeout(seconds(10), connect_async(url)).await.unwrap().unwrap();
        let (sink, mut stream) = socket.split();
        let complaints = self.complaints.clone();
        // The original leaves the reading to its library, which answers pings and sees the end.
        self.reading = Some(tokio::spawn(async move {
            while let Some(Ok(frame)) = stream.next().await {
                if frame.is_text() || frame.is_binary() {
                    complaints.lock().unwrap().push(format!("telemetry was answered by {frame}"));
                }
            }
        }));
        self.socket = Some(tokio::sync::Mutex::new(sink));
    }

    /// The answer to a GET, read strictly.
    async fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        let answer = self.call(Method::GET, path, None).await;
        serde_json::from_value(answer.clone()).unwrap_or_else(|error| panic!("{path}: {error} in {answer}"))
    }

    /// A call with the original's retries: it logs in again after the login has ended, and waits for a busy service.
    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        for attempt in 0..TRIES {
            let answer = self.send(&method, path, body.as_ref()).await;
            match answer.status {
                200..300 => return serde_json::from_slice(&answer.body).expect("a success is JSON"),
                401 if matches!(self.account, Account::Password { .. }) => self.log_in().await,
                429 => sleep(seconds(wait(&answer).unwrap_or(1 << attempt))).await,
                500.. => sleep(seconds(1 << attempt)).await,
                status => panic!("{method} {path}: {status} {}", answer.text()),
            }
        }
        panic!("{method} {path}: given up")
    }

    async fn send(&self, method: &Method, path: &str, body: Option<&Value>) -> Answer {
        let client = self.client();
        // On every call, without a body too.
        let request = client.request(method.clone(), path).header("content-type", "application/json");
        let request = match body {
            Some(body) => request.body(body.to_string()),
            None => request,
        };
        client.send(request).await
    }

    fn complain(&self, what: String) {
        self.complaints.lock().unwrap().push(what);
    }
}

fn wait(answer: &Answer) -> Option<u64> {
    answer.header("retry-after")?.parse().ok()
}
