//! A receiver of webhooks as strict as those of the WebMACS family: it reads as many bytes as `Content-Length` says, takes
//! no other framing, checks the signature over `<timestamp>.<raw body>`, a clock that is off by five minutes at most, and
//! that the body is a JSON object with `type` and `time`, which conforms to the schema of its type in the catalogue. Or it does
//! something worse.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use hmac::{Hmac, KeyInit, Mac};
use jsonschema::Validator;
use serde_json::Value;
use signalbox_projections::automation::messages::{ALARM_MESSAGE, TEST_MESSAGE};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

use super::{eventually, eventually_some, seconds};

const MAX_SKEW_SECONDS: u64 = 300;
/// Types of bodies that no subscription lists: tests, and messages to contacts.
const NOT_SUBSCRIBED: [&str; 3] = ["webhook.test", ALARM_MESSAGE, TEST_MESSAGE];

/// The schemas of the catalogue, by type.
static SCHEMAS: LazyLock<HashMap<&str, Validator>> = LazyLock::new(|| {
    let options = jsonschema::options().should_validate_formats(true);
    let schemas = signalbox_gateway::webhook_event_schemas().into_iter();
    schemas.map(|(name, schema)| (name, options.build(&schema).unwrap())).collect()
});

/// A receiver's reaction to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Behaviour {
    /// 200.
    Accept,
    /// Another status.
    Answer(u16),
    /// Another status, with this `Retry-After`.
    RetryAfter(u16, String),
    /// No answer until the behaviour changes; then 200.
    Hold,
    /// Breaks the connection.
    Reset,
    /// Sends the caller elsewhere.
    Redirect(String),
    /// 200, and a body without end.
    Flood,
    /// A byte of the head now and then, without end.
    Drip,
    /// 200, and a byte of the body now and then, without end.
    DripBody,
    /// Interim answers without end.
    Interim,
}

/// A request that came.
#[derive(Debug, Clone)]
pub struct Got {
    /// By their names in lower case.
    pub headers: HashMap<String, String>,
    pub body: String,
    pub at: Instant,
    /// Why a strict receiver refused it.
    pub refused: Option<&'static str>,
}

impl Got {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

pub struct Receiver {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    server: JoinHandle<()>,
}

struct Shared {
    secret: Mutex<Option<String>>,
    /// Whether it looks at requests as receivers of webhooks do.
    is_strict: bool,
    behaviour: watch::Sender<Behaviour>,
    got: Mutex<Vec<Got>>,
    held: AtomicUsize,
    most_held: AtomicUsize,
}

impl Receiver {
    pub async fn start() -> Self {
        Self::with(None, Behaviour::Accept).await
    }

    /// One that takes any request, like the incoming webhook of a chat.
    pub async fn lenient() -> Self {
        Self::made(None, Behaviour::Accept, false).await
    }

    /// One that takes only what is signed with `secret`.
    pub async fn signed(secret: &str) -> Self {
        Self::with(Some(secret.to_owned()), Behaviour::Accept).await
    }

    pub async fn with(secret: Option<String>, behaviour: Behaviour) -> Self {
        Self::made(secret, behaviour, true).await
    }

    async fn made(secret: Option<String>, behaviour: Behaviour, is_strict: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            secret: Mutex::new(secret),
            is_strict,
            behaviour: watch::Sender::new(behaviour),
            got: Mutex::default(),
            held: AtomicUsize::new(0),
            most_held: AtomicUsize::new(0),
        });
        let for_server = shared.clone();
        let server = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = for_server.clone();
                // A connection that breaks is the caller's affair.
                tokio::spawn(async move { serve(socket, &shared).await });
            }
        });
        Self { address, shared, server }
    }

    pub fn url(&self) -> String {
        self.url_of("hook")
    }

    pub fn url_of(&self, path: &str) -> String {
        format!("http://{}/{path}", self.address)
    }

    /// From now on takes only what is signed with `secret`.
    pub fn trust(&self, secret: &str) {
        *self.shared.secret.lock().unwrap() = Some(secret.to_owned());
    }

    pub fn behave(&self, behaviour: Behaviour) {
        self.shared.behaviour.send_replace(behaviour);
    }

    pub fn got(&self) -> Vec<Got> {
        self.shared.got.lock().unwrap().clone()
    }

    /// Requests that are held now.
    pub fn held(&self) -> usize {
        self.shared.held.load(Ordering::SeqCst)
    }

    /// Most requests that were held at one time.
    pub fn most_held(&self) -> usize {
        self.shared.most_held.load(Ordering::SeqCst)
    }

    /// Waits until `count` requests have come; returns them.
    #[track_caller]
    pub fn until_got(&self, count: usize) -> impl Future<Output = Vec<Got>> {
        eventually_some(seconds(20), async move || Some(self.got()).filter(|got| got.len() >= count))
    }

    /// Waits until `count` requests are held.
    #[track_caller]
    pub fn until_held(&self, count: usize) -> impl Future<Output = ()> {
        eventually(seconds(20), async move || self.held() == count)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(socket: TcpStream, shared: &Shared) -> Option<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let got = read(&mut socket, shared).await?;
        let refused = got.refused;
        shared.got.lock().unwrap().push(got);
        let status = match refused {
            Some("signature" | "timestamp") => 401,
            Some(_) => 400,
            None => answer(socket.get_mut(), shared).await?,
        };
        let head = format!("HTTP/1.1 {status} Done\r\nContent-Length: 2\r\n\r\nok");
        socket.get_mut().write_all(head.as_bytes()).await.ok()?;
    }
}

/// Status of the answer; `None` if there is none, or if it has been sent already.
async fn answer(socket: &mut TcpStream, shared: &Shared) -> Option<u16> {
    let behaviour = shared.behaviour.borrow().clone();
    match behaviour {
        Behaviour::Accept => Some(200),
        Behaviour::Answer(status) => Some(status),
        Behaviour::RetryAfter(status, wait) => {
            let head = format!("HTTP/1.1 {status} Later\r\nRetry-After: {wait}\r\nContent-Length: 0\r\n\r\n");
            socket.write_all(head.as_bytes()).await.ok()?;
            None
        }
        Behaviour::Hold => {
            let held = shared.held.fetch_add(1, Ordering::SeqCst) + 1;
            shared.most_held.fetch_max(held, Ordering::SeqCst);
            let mut behaviours = shared.behaviour.subscribe();
            let mut byte = [0];
            // A caller that gives up closes the connection.
            let is_there = tokio::select! {
                changed = behaviours.wait_for(|behaviour| *behaviour != Behaviour::Hold) => changed.is_ok(),
                _ = socket.peek(&mut byte) => false,
            };
            shared.held.fetch_sub(1, Ordering::SeqCst);
            is_there.then_some(200)
        }
        Behaviour::Reset => {
            socket.set_zero_linger().unwrap();
            None
        }
        Behaviour::Redirect(to) => {
            let head = format!("HTTP/1.1 307 Away\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
            socket.write_all(head.as_bytes()).await.ok()?;
            None
        }
        Behaviour::Drip => drip(socket, shared, b"HTTP/1.1 200 OK\r\nX-Slow: ", b"x").await,
        Behaviour::DripBody => {
            drip(socket, shared, b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x").await
        }
        Behaviour::Interim => drip(socket, shared, b"", b"HTTP/1.1 102 Processing\r\n\r\n").await,
        Behaviour::Flood => {
            socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n").await.ok()?;
            let zeros = vec![0; 64 * 1024];
            while socket.write_all(&zeros).await.is_ok() {}
            None
        }
    }
}

/// Sends `head`, and `more` after it again and again, until the caller closes the connection. Held as long.
async fn drip(socket: &mut TcpStream, shared: &Shared, head: &[u8], more: &[u8]) -> Option<u16> {
    socket.set_nodelay(true).ok()?;
    socket.write_all(head).await.ok()?;
    shared.held.fetch_add(1, Ordering::SeqCst);
    while socket.write_all(more).await.is_ok() {
        sleep(Duration::from_millis(20)).await;
    }
    shared.held.fetch_sub(1, Ordering::SeqCst);
    None
}

/// The fault of a body that does not conform to the schema of its type.
fn fault_of_schema(body: &Value) -> Option<String> {
    let kind = body["type"].as_str()?;
    match SCHEMAS.get(kind) {
        Some(schema) => schema.iter_errors(body).next().map(|fault| fault.to_string()),
        None if NOT_SUBSCRIBED.contains(&kind) => None,
        None => Some("the catalogue has no such type".to_owned()),
    }
}

/// A request, judged; `None` when the connection has ended.
async fn read(socket: &mut BufReader<TcpStream>, shared: &Shared) -> Option<Got> {
    let mut line = String::new();
    if socket.read_line(&mut line).await.ok()? == 0 {
        return None;
    }
    let mut words = line.split_whitespace();
    let method = words.next()?.to_owned();
    let mut headers = HashMap::new();
    loop {
        let mut line = String::new();
        socket.read_line(&mut line).await.ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    socket.read_exact(&mut body).await.ok()?;
    let body = String::from_utf8(body).unwrap_or_default();
    let mut got = Got { headers, body, at: Instant::now(), refused: None };
    let secret = shared.secret.lock().unwrap().clone();
    got.refused =
        shared.is_strict.then(|| fault(&method, &got, length.is_some(), secret.as_deref())).flatten();
    Some(got)
}

fn fault(method: &str, got: &Got, has_length: bool, secret: Option<&str>) -> Option<&'static str> {
    let timestamp = got.header("x-webhook-timestamp");
    let is_integer = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let skew = timestamp.parse::<u64>().map_or(u64::MAX, |seconds| seconds.abs_diff(now));
    let is_signed = |secret: &str| {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(secret.as_bytes()).unwrap();
        mac.update(timestamp.as_bytes());
        mac.update(b".");
        mac.update(got.body.as_bytes());
        got.header("x-webhook-signature") == hex::encode(mac.finalize().into_bytes())
    };
    let body: Option<Value> = serde_json::from_str(&got.body).ok();
    let is_event = body.as_ref().is_some_and(|body| body["type"].is_string() && body["time"].is_string());
    let of_schema = body.as_ref().and_then(fault_of_schema);
    if let Some(fault) = &of_schema {
        eprintln!("{fault}: {}", got.body);
    }
    match () {
        () if method != "POST" => Some("method"),
        () if !has_length || got.headers.contains_key("transfer-encoding") => Some("length"),
        () if got.header("content-type") != "application/json" => Some("content type"),
        () if !is_integer || skew > MAX_SKEW_SECONDS => Some("timestamp"),
        () if secret.is_some_and(|secret| !is_signed(secret)) => Some("signature"),
        () if secret.is_none() && got.headers.contains_key("x-webhook-signature") => Some("signature"),
        () if !is_event => Some("body"),
        () if of_schema.is_some() => Some("schema"),
        () => None,
    }
}
