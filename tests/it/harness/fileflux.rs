//! A stand-in for an agent of the FileFlux family. It lists no capabilities, reads messages strictly, and behaves
//! like the original: a service must not surprise it.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, stream};
use reqwest::{Body, Method};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{net::TcpStream, sync::mpsc, task::JoinHandle, time::timeout};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Message, client::IntoClientRequest},
};

use super::{Client, Folder, client::encode, seconds};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Where a test departs from the usual.
#[derive(Debug, Clone)]
pub struct Habits {
    /// The original drops a connection without a data frame for 90 s.
    pub drops_idle_after: Duration,
    /// Loses the report of a leg, as over polling when a call fails.
    pub loses_reports: bool,
    /// Reports each leg twice.
    pub reports_twice: bool,
}

impl Default for Habits {
    fn default() -> Self {
        Self { drops_idle_after: seconds(90), loses_reports: false, reports_twice: false }
    }
}

/// A running agent.
pub struct FileFlux {
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

struct Inner {
    client: Client,
    folder: Arc<Folder>,
    habits: Habits,
    /// Transfers that are worked on; the original takes no second request for one.
    active: Mutex<HashSet<String>>,
    /// Every message that came, in order.
    received: Mutex<Vec<Value>>,
    /// Every message that was sent, in order.
    sent: Mutex<Vec<Value>>,
    /// Violated expectations of the agent; a test fails on any.
    complaints: Mutex<Vec<String>>,
}

/// Exactly the fields that the original knows: anything more is an extension that was not asked for.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Transfer {
    id: String,
    #[serde(rename = "job_id")]
    _job_id: String,
    source_path: String,
    destination_path: String,
    #[serde(rename = "compressed")]
    _compressed: bool,
    #[serde(rename = "chunk_size")]
    _chunk_size: i64,
    transfer_type: String,
    #[serde(rename = "destination_agent")]
    _destination_agent: Option<String>,
}

impl FileFlux {
    /// An agent that is connected by WebSocket; `client` speaks with the agent's token.
    pub async fn websocket(client: Client, folder: Arc<Folder>, habits: Habits) -> Self {
        let socket = open(&client).await;
        let inner = Inner::new(client, folder, habits);
        let task = tokio::spawn(converse(inner.clone(), socket));
        Self { inner, task }
    }

    /// An agent that polls.
    pub async fn polling(client: Client, folder: Arc<Folder>, habits: Habits) -> Self {
        let info = json!({"system_info": info("polling"), "transport": "polling"});
        client.post("/api/agent/connect", info).await.expect(200);
        let inner = Inner::new(client, folder, habits);
        let task = tokio::spawn(poll(inner.clone()));
        Self { inner, task }
    }

    /// Messages of `kind` that came.
    pub fn received(&self, kind: &str) -> Vec<Value> {
        of_kind(&self.inner.received, kind)
    }

    /// Messages of `kind` that were sent.
    pub fn sent(&self, kind: &str) -> Vec<Value> {
        of_kind(&self.inner.sent, kind)
    }

    /// Whether the connection stands.
    pub fn is_connected(&self) -> bool {
        !self.task.is_finished()
    }

    /// Ends the agent and fails the test when anything was not as it expects.
    pub fn stop(self) {
        self.task.abort();
        let complaints = self.inner.complaints.lock().unwrap().clone();
        assert!(complaints.is_empty(), "{complaints:?}");
    }
}

fn of_kind(messages: &Mutex<Vec<Value>>, kind: &str) -> Vec<Value> {
    messages.lock().unwrap().iter().filter(|message| message["type"] == kind).cloned().collect()
}

/// Opens the WebSocket of the agent whose token `client` has.
async fn open(client: &Client) -> Socket {
    let mut request = client.socket_url("/ws/agent").into_client_request().unwrap();
    let bearer = format!("Bearer {}", client.token.as_ref().unwrap());
    request.headers_mut().insert("authorization", bearer.parse().unwrap());
    timeout(seconds(10), connect_async(request)).await.expect("handshake within 10 s").unwrap().0
}

fn info(transport: &str) -> Value {
    json!({"hostname": "press", "os_name": "linux", "os_version": "6", "arch": "", "ip_address": "10.1.2.3",
        "num_cpu": 4, "total_mem_mb": 1024, "go_version": "go1.24", "version": "1.0.0", "transport_mode": transport})
}

async fn converse(inner: Arc<Inner>, socket: Socket) {
    let (mut sink, mut stream) = socket.split();
    let (outgoing, mut to_send) = mpsc::unbounded_channel::<Value>();
    inner.say(&outgoing, "agent_info", info("websocket"));
    let writing = async {
        while let Some(message) = to_send.recv().await {
            if sink.send(Message::text(message.to_string())).await.is_err() {
                return;
            }
        }
    };
    let reading = async {
        let mut idle = tokio::time::Instant::now() + inner.habits.drops_idle_after;
        loop {
            // Pings do not extend the deadline, only data frames do.
            match tokio::time::timeout_at(idle, stream.next()).await {
                Ok(Some(Ok(Message::Text(text)))) => {
                    idle = tokio::time::Instant::now() + inner.habits.drops_idle_after;
                    let message: Value = serde_json::from_str(&text).unwrap();
                    let fields: Vec<_> = message.as_object().unwrap().keys().cloned().collect();
                    if fields != ["data", "type"] {
                        inner.complain(format!("an envelope with {fields:?}"));
                    }
                    inner.clone().take(message, outgoing.clone());
                }
                Ok(Some(Ok(Message::Close(_)) | Err(_)) | None) => return,
                Ok(Some(Ok(_))) => {}
                Err(_) => return inner.complain("no data frame in time".to_owned()),
            }
        }
    };
    tokio::select! { () = writing => {}, () = reading => {} }
}

async fn poll(inner: Arc<Inner>) {
    let (outgoing, mut to_send) = mpsc::unbounded_channel::<Value>();
    let sending = async {
        while let Some(message) = to_send.recv().await {
            // Exactly one try: a report that is refused is lost.
            let answer = inner.client.post("/api/agent/messages", message).await;
            if !matches!(answer.status, 200 | 204) {
                inner.complain(format!("a message was answered by {}", answer.status));
            }
        }
    };
    let polling = async {
        loop {
            let answer = inner.client.get("/api/agent/poll?timeout=2").await;
            match answer.status {
                200 => {
                    let items = answer.expect(200);
                    let ids: Vec<_> =
                        items.as_array().unwrap().iter().map(|item| item["id"].clone()).collect();
                    if !ids.iter().all(|id| id.as_i64().is_some_and(|id| id > 0)) {
                        inner.complain(format!("ids {ids:?}"));
                    }
                    for item in items.as_array().unwrap() {
                        inner.clone().take(item["message"].clone(), outgoing.clone());
                    }
                    inner.client.post("/api/agent/ack", json!({ "message_ids": ids })).await;
                }
                204 => {}
                status => return inner.complain(format!("a poll was answered by {status}")),
            }
        }
    };
    tokio::select! { () = sending => {}, () = polling => {} }
}

impl Inner {
    fn new(client: Client, folder: Arc<Folder>, habits: Habits) -> Arc<Self> {
        let (active, received, sent, complaints) = Default::default();
        Arc::new(Self { client, folder, habits, active, received, sent, complaints })
    }

    fn say(&self, outgoing: &mpsc::UnboundedSender<Value>, kind: &str, data: Value) {
        let message = json!({"type": kind, "data": data});
        self.sent.lock().unwrap().push(message.clone());
        // The connection may have ended meanwhile; then the message is lost.
        let _ = outgoing.send(message);
    }

    fn complain(&self, what: String) {
        self.complaints.lock().unwrap().push(what);
    }

    fn take(self: Arc<Self>, message: Value, outgoing: mpsc::UnboundedSender<Value>) {
        self.received.lock().unwrap().push(message.clone());
        match message["type"].as_str() {
            Some("connection_test") => {
                self.say(&outgoing, "connection_test_response", message["data"].clone());
            }
            Some("transfer_request") => self.begin(&message["data"], outgoing),
            Some("cancel_transfer") => {
                let id = message["data"]["transfer_id"].as_str().unwrap_or_default().to_owned();
                if id.parse::<u64>().is_err() {
                    self.complain(format!("a cancel of {message}"));
                }
            }
            _ => self.complain(format!("the unknown message {message}")),
        }
    }

    fn begin(self: Arc<Self>, data: &Value, outgoing: mpsc::UnboundedSender<Value>) {
        let transfer = match serde_json::from_value::<Transfer>(data["transfer"].clone()) {
            Ok(transfer) if transfer.id.parse::<u64>().is_ok() => transfer,
            read => return self.complain(format!("{data} is read as {read:?}")),
        };
        if !self.active.lock().unwrap().insert(transfer.id.clone()) {
            let data = json!({"transfer_id": transfer.id, "error": "läuft bereits"});
            return self.say(&outgoing, "transfer_error", data);
        }
        tokio::spawn(async move {
            let moved = match transfer.transfer_type.as_str() {
                "upload" => self.upload(&transfer).await,
                "download" => self.download(&transfer).await,
                other => Err(format!("unknown transfer type {other}")),
            };
            let reports =
                if self.habits.loses_reports { 0 } else { 1 + usize::from(self.habits.reports_twice) };
            for _ in 0..reports {
                match &moved {
                    Ok(()) => {
                        let data = json!({"transfer_id": transfer.id, "duration": 5});
                        self.say(&outgoing, "transfer_complete", data);
                    }
                    Err(error) => {
                        let data = json!({"transfer_id": transfer.id, "error": error});
                        self.say(&outgoing, "transfer_error", data);
                    }
                }
            }
            // Only now is the id forgotten.
            self.active.lock().unwrap().remove(&transfer.id);
        });
    }

    /// A chunked body without a length; anything but 200 is a failure.
    async fn upload(&self, transfer: &Transfer) -> Result<(), String> {
        let bytes = std::fs::read(&transfer.source_path).map_err(|error| error.to_string())?;
        let name = transfer.source_path.rsplit('/').next().unwrap();
        let path = format!("/api/files/{}/upload?filename={}", transfer.id, encode(name));
        let chunks: Vec<_> = bytes.chunks(64 * 1024).map(Bytes::copy_from_slice).collect();
        let body = Body::wrap_stream(stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)));
        let request = self.client.request(Method::PUT, &path);
        let answer =
            self.client.send(request.header("content-type", "application/octet-stream").body(body)).await;
        if answer.status != 200 {
            return Err(format!("upload: {} {}", answer.status, answer.text()));
        }
        let out = answer.expect(200);
        let described = out["transfer_id"].is_i64() && out["agent_id"].is_i64() && out["filename"] == name;
        if !described || out["size"] != bytes.len() {
            self.complain(format!("an upload was answered by {out}"));
        }
        let progress = json!({"transfer_id": transfer.id, "progress": 1.0, "current_bytes": bytes.len(), "total_bytes": bytes.len()});
        let _ = self
            .client
            .post("/api/agent/messages", json!({"type": "transfer_progress", "data": progress}))
            .await;
        Ok(())
    }

    /// Truncates in place; a body shorter than announced is an error.
    async fn download(&self, transfer: &Transfer) -> Result<(), String> {
        let path = format!("/api/files/{}/download", transfer.id);
        let answer = self.client.get(&path).await;
        if answer.status != 200 {
            return Err(format!("download: {} {}", answer.status, answer.text()));
        }
        let announced = answer.header("content-length").and_then(|length| length.parse().ok());
        if announced != Some(answer.body.len()) || !answer.is_whole {
            return Err(format!("{announced:?} bytes were announced, {} came", answer.body.len()));
        }
        assert!(transfer.destination_path.starts_with(&self.folder.text("")), "outside of the folder");
        std::fs::create_dir_all(std::path::Path::new(&transfer.destination_path).parent().unwrap()).unwrap();
        std::fs::write(&transfer.destination_path, &answer.body).map_err(|error| error.to_string())
    }
}
