//! A stand-in for an external server: it keeps every request and answers as configured.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use futures::{StreamExt, stream};
use serde_json::Value;
use tokio::{net::TcpListener, task::JoinHandle};

/// A request that came, whole.
#[derive(Debug, Clone)]
pub struct Seen {
    /// Method and path with query, as in `PUT /tika`.
    pub line: String,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// The answer to a request.
#[derive(Debug, Clone)]
pub enum Reply {
    Status(u16),
    Text(String),
    Json(Value),
    Bytes(Vec<u8>),
    /// These bytes, and then an answer that never ends.
    Stuck(Vec<u8>),
    /// That it is at this address.
    Away(String),
    /// This status, and that it may be tried again at once.
    Busy(u16),
    /// Nothing, ever.
    Hang,
}

pub struct StandIn {
    pub url: String,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

type Behaviour = Box<dyn Fn(&Seen) -> Reply + Send>;

struct Shared {
    behaviour: Mutex<Behaviour>,
    seen: Mutex<Vec<Seen>>,
}

impl Seen {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl StandIn {
    pub async fn start(behaviour: impl Fn(&Seen) -> Reply + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let shared = Arc::new(Shared { behaviour: Mutex::new(Box::new(behaviour)), seen: Mutex::default() });
        let app = Router::new().fallback(answer).with_state(shared.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, shared, server }
    }

    /// Sets the behaviour from now on.
    pub fn behave(&self, behaviour: impl Fn(&Seen) -> Reply + Send + 'static) {
        *self.shared.behaviour.lock().unwrap() = Box::new(behaviour);
    }

    /// Counts requests again.
    pub fn forget(&self) {
        self.shared.seen.lock().unwrap().clear();
    }

    /// Requests so far whose method and path begin with `line`.
    pub fn seen(&self, line: &str) -> Vec<Seen> {
        let seen = self.shared.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.line.starts_with(line)).cloned().collect()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let line = format!("{} {}", parts.method, parts.uri);
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default().to_vec();
    let seen = Seen { line, headers: parts.headers, body };
    let reply = (shared.behaviour.lock().unwrap())(&seen);
    shared.seen.lock().unwrap().push(seen);
    let mut location = String::new();
    let (status, body) = match reply {
        Reply::Bytes(bytes) => (200, bytes.into()),
        Reply::Stuck(bytes) => {
            let first = stream::iter([Ok::<_, Infallible>(bytes)]);
            (200, Body::from_stream(first.chain(stream::pending())))
        }
        Reply::Away(to) => {
            location = to;
            (302, Body::empty())
        }
        Reply::Status(status) | Reply::Busy(status) => (status, Body::empty()),
        Reply::Text(text) => (200, text.into()),
        Reply::Json(json) => (200, json.to_string().into()),
        Reply::Hang => std::future::pending().await,
    };
    let answer = Response::builder().status(StatusCode::from_u16(status).unwrap());
    answer.header("retry-after", "0").header("location", location).body(body).unwrap()
}
