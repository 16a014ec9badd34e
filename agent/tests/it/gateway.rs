//! The stand-in gateway: its state, and what tests do with it.

use crate::{gateway_files as files, gateway_mail as mail};
use axum::{
    Router,
    extract::{DefaultBodyLimit, Request, State},
    http::StatusCode,
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{any, get, post, put},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle, time::timeout};

pub const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

/// A test that waits longer for anything has failed.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Default)]
pub struct Inner {
    pub mail: Vec<Mail>,
    /// All messages of the agent, in order, with their transport.
    pub received: Vec<(&'static str, Value)>,
    /// Method, path, query and range of the calls for bytes.
    pub calls: Vec<String>,
    pub transfers: HashMap<u64, BTreeMap<String, Stored>>,
    /// Violations of the protocol by the agent.
    pub violations: Vec<String>,
    pub websockets: usize,
    pub faults: Faults,
}

/// Faults that the gateway injects.
#[derive(Default)]
pub struct Faults {
    pub refuses_websockets: bool,
    /// WebSocket connections are read up to the first message, and then neither read nor closed.
    pub falls_silent: bool,
    /// WebSocket connections are closed when this message type arrives, before it is handled; this many times.
    pub hangs_up_on: Option<(&'static str, u32)>,
    pub lies_about_digests: bool,
    /// Downloads stop after this many bytes, but the connection stays.
    pub downloads_stall_after: Option<usize>,
    /// Calls for the bytes of these transfers are answered with this status.
    pub answers: HashMap<u64, StatusCode>,
    /// Uploads stall after this many bytes.
    pub uploads_stall_after: Option<usize>,
}

pub struct Mail {
    pub id: i64,
    pub message: Value,
    pub delivered: bool,
    pub acknowledged: bool,
}

#[derive(Default, Clone)]
pub struct Stored {
    pub bytes: Vec<u8>,
    pub complete: bool,
}

pub struct Shared {
    inner: Mutex<Inner>,
    changed: Notify,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }

    /// Changes the state and wakes all waiting tests.
    pub fn change<T>(&self, change: impl FnOnce(&mut Inner) -> T) -> T {
        let value = change(&mut self.lock());
        self.changed.notify_waiters();
        value
    }

    /// Waits until `look` finds something.
    pub async fn until<T>(&self, mut look: impl FnMut(&mut Inner) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            changed.await;
        }
    }
}

pub struct Gateway {
    pub shared: Arc<Shared>,
    pub address: SocketAddr,
    server: JoinHandle<()>,
}

impl Gateway {
    pub async fn start() -> Self {
        let shared = Arc::new(Shared { inner: Mutex::default(), changed: Notify::new() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new()
            .route("/ws/agent", any(mail::websocket))
            .route("/api/agent/connect", post(mail::connect))
            .route("/api/agent/poll", get(mail::poll))
            .route("/api/agent/ack", post(mail::ack))
            .route("/api/agent/messages", post(mail::messages))
            .route("/api/files/{id}/upload", put(files::upload))
            .route("/api/files/{id}/download", get(files::download))
            .route("/api/files/{id}/manifest", get(files::manifest))
            .layer(middleware::from_fn(authenticate))
            .layer(DefaultBodyLimit::disable())
            .with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { shared, address, server }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn faults(&self, set: impl FnOnce(&mut Faults)) {
        self.shared.change(|inner| set(&mut inner.faults));
    }

    /// From now on, calls for the bytes of a transfer are answered with `status` alone.
    pub fn answer(&self, id: u64, status: u16) {
        let status = StatusCode::from_u16(status).unwrap();
        self.shared.change(|inner| inner.faults.answers.insert(id, status));
    }

    /// Puts a message into the agent's mailbox.
    pub fn post(&self, kind: &str, data: Value) -> i64 {
        self.shared.change(|inner| {
            let id = inner.mail.len() as i64 + 1;
            let message = json!({ "type": kind, "data": data });
            inner.mail.push(Mail { id, message, delivered: false, acknowledged: false });
            id
        })
    }

    /// Requests a transfer; `extra` completes or overrides the usual fields.
    pub fn request(&self, direction: &str, id: u64, extra: Value) -> i64 {
        let mut transfer = json!({
            "id": id.to_string(), "job_id": "", "source_path": "", "destination_path": "", "compressed": false,
            "chunk_size": 8, "transfer_type": direction, "attempt": 1,
        });
        for (key, value) in extra.as_object().unwrap() {
            transfer[key] = value.clone();
        }
        self.shared.change(|inner| {
            inner.transfers.entry(id).or_default();
        });
        self.post("transfer_request", json!({ "transfer": transfer }))
    }

    /// Stages a file as if a source agent had brought it.
    pub fn stage(&self, id: u64, name: &str, bytes: &[u8]) {
        let stored = Stored { bytes: bytes.to_vec(), complete: true };
        self.shared.change(|inner| {
            inner.transfers.entry(id).or_default().insert(name.to_owned(), stored);
        });
    }

    pub fn staged(&self, id: u64) -> BTreeMap<String, Stored> {
        self.shared.lock().transfers[&id].clone()
    }

    pub async fn until<T>(&self, what: &str, look: impl FnMut(&mut Inner) -> Option<T>) -> T {
        match timeout(ANSWER_TIMEOUT, self.shared.until(look)).await {
            Ok(found) => found,
            Err(_) => panic!("no {what}; {}", self.summary()),
        }
    }

    /// Waits for the `count`th message of a type and gives its data.
    pub async fn nth(&self, kind: &str, count: usize) -> Value {
        self.until(&format!("{kind} number {count}"), |inner| {
            let mut found = inner.received.iter().filter(|(_, message)| message["type"] == kind);
            found.nth(count - 1).map(|(_, message)| message["data"].clone())
        })
        .await
    }

    /// Waits for the end of a transfer and gives the message.
    pub async fn report(&self, id: u64) -> Value {
        let id = id.to_string();
        self.until("report", |inner| reports(inner, &id).into_iter().next()).await
    }

    pub fn reports(&self, id: u64) -> Vec<Value> {
        reports(&self.shared.lock(), &id.to_string())
    }

    pub async fn acknowledged(&self, mail: i64) {
        self.until("acknowledgement", |inner| inner.mail[mail as usize - 1].acknowledged.then_some(())).await;
    }

    /// Requests an echo. When it arrives, everything sent before has been handled.
    pub async fn echo(&self, request_id: &str) {
        self.post("connection_test", json!({ "request_id": request_id }));
        self.until("echo", |inner| {
            let echo = json!({ "type": "connection_test_response", "data": { "request_id": request_id } });
            inner.received.iter().any(|(_, message)| *message == echo).then_some(())
        })
        .await;
    }

    pub fn calls(&self, part: &str) -> usize {
        self.shared.lock().calls.iter().filter(|call| call.contains(part)).count()
    }

    fn summary(&self) -> String {
        let inner = self.shared.lock();
        format!("received {:#?}, calls {:#?}, violations {:?}", inner.received, inner.calls, inner.violations)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.server.abort();
        if !std::thread::panicking() {
            assert_eq!(self.shared.lock().violations, Vec::<String>::new());
        }
    }
}

fn reports(inner: &Inner, id: &str) -> Vec<Value> {
    let ends = |message: &Value| {
        matches!(message["type"].as_str(), Some("transfer_complete" | "transfer_error"))
            && message["data"]["transfer_id"] == id
    };
    inner.received.iter().map(|(_, message)| message).filter(|message| ends(message)).cloned().collect()
}

async fn authenticate(request: Request, next: Next) -> Response {
    let expected = format!("Bearer {TOKEN}");
    if request.headers().get("authorization").is_some_and(|value| value == expected.as_str()) {
        next.run(request).await
    } else {
        error(StatusCode::UNAUTHORIZED, "invalid agent token")
    }
}

pub fn error(status: StatusCode, text: &str) -> Response {
    (status, axum::Json(json!({ "error": text }))).into_response()
}

pub type Gate = State<Arc<Shared>>;
