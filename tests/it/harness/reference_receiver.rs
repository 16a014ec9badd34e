//! Receivers that verify every delivery by a reference library of Standard Webhooks, and a tampered copy of each: a process with
//! that of PyPI, one with that of npm, and a server in this process with that of crates.io. All of them do the same:
//! PUT of a path says by which secrets its deliveries are signed, each of which must verify; GET /report says what came.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    process::Stdio,
    sync::{Arc, Mutex},
};

use axum::{Router, body::Bytes, extract::State};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reqwest::{
    Method, StatusCode,
    header::{HeaderMap, HeaderValue},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use standardwebhooks::Webhook;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    net::TcpListener,
    process::{Child, ChildStdin, Command},
    task::JoinHandle,
    time::timeout,
};

use super::seconds;

const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const KINDS: [&str; 4] = ["body", "id", "timestamp", "signature"];

/// The deliveries that a receiver got.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// Authentic deliveries; of each a tampered copy was tried.
    pub verified: usize,
    /// Without those that came before.
    pub distinct: usize,
    /// Deliveries that were refused.
    pub faults: Vec<String>,
    /// Tampered copies that were refused, by what was changed in them.
    pub refused: BTreeMap<String, usize>,
    /// Tampered copies that were taken for authentic.
    pub accepted: Vec<String>,
}

pub struct ReferenceReceiver {
    url: String,
    _server: Server,
}

enum Server {
    /// Ends with its standard input.
    Process(#[expect(dead_code, reason = "dropping ends it")] Box<(Child, ChildStdin)>),
    Task(JoinHandle<()>),
}

impl ReferenceReceiver {
    pub async fn python(seed: u64) -> Self {
        let mut command = Command::new("python3");
        command.env("PYTHONPATH", place(".tools/clients")).env("PYTHONDONTWRITEBYTECODE", "1");
        Self::process(command.arg(place("tests/webhook_receivers/receiver.py")), seed).await
    }

    pub async fn node(seed: u64) -> Self {
        let mut command = Command::new(place(".tools/node/bin/node"));
        Self::process(command.arg(place("tests/webhook_receivers/receiver.mjs")), seed).await
    }

    pub async fn rust(seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let report = Report {
            refused: KINDS.iter().map(|kind| ((*kind).to_owned(), 0)).collect(),
            ..Report::default()
        };
        let judge = Judge {
            seen: HashSet::new(),
            webhooks: HashMap::new(),
            rng: StdRng::seed_from_u64(seed),
            report,
        };
        let router = Router::new().fallback(answer).with_state(Arc::new(Mutex::new(judge)));
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, _server: Server::Task(server) }
    }

    async fn process(command: &mut Command, seed: u64) -> Self {
        command.arg(seed.to_string()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("tools/bootstrap tests installs what the receiver needs");
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line =
            timeout(seconds(60), lines.next_line()).await.expect("the receiver does not begin").unwrap();
        let port = line.expect("the receiver has ended: install what it needs with tools/bootstrap tests");
        let stdin = child.stdin.take().unwrap();
        Self { url: format!("http://127.0.0.1:{port}"), _server: Server::Process(Box::new((child, stdin))) }
    }

    pub fn url_of(&self, path: &str) -> String {
        format!("{}/{path}", self.url)
    }

    /// Deliveries to `path` are signed by each of `keys`: `{"secret", "raw"}`, or `{"public_key"}` for Node.
    pub async fn trust(&self, path: &str, keys: &Value) {
        let answer =
            reqwest::Client::new().put(self.url_of(path)).body(keys.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), 204);
    }

    pub async fn report(&self) -> Report {
        reqwest::get(self.url_of("report")).await.unwrap().json().await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Task(task) = self {
            task.abort();
        }
    }
}

fn place(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path).display().to_string()
}

/// The receiver with the library of crates.io.
struct Judge {
    seen: HashSet<(String, String)>,
    webhooks: HashMap<String, Vec<Webhook>>,
    rng: StdRng,
    report: Report,
}

#[derive(Deserialize)]
struct By {
    secret: String,
    raw: bool,
}

/// The signed parts and the signature of a request, by the words of [`KINDS`].
type Delivery = BTreeMap<&'static str, String>;

async fn answer(
    State(judge): State<Arc<Mutex<Judge>>>,
    method: Method,
    uri: axum::http::Uri,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let mut judge = judge.lock().unwrap();
    let body = String::from_utf8(body.to_vec()).unwrap();
    if method == Method::GET {
        return (StatusCode::OK, serde_json::to_string(&judge.report).unwrap());
    }
    if method == Method::PUT {
        let keys: Vec<By> = serde_json::from_str(&body).unwrap();
        let webhook = |by: By| match by.raw {
            true => Webhook::from_bytes(by.secret.into_bytes()).unwrap(),
            false => Webhook::new(&by.secret).unwrap(),
        };
        judge.webhooks.insert(uri.path().to_owned(), keys.into_iter().map(webhook).collect());
        return (StatusCode::NO_CONTENT, String::new());
    }
    let header =
        |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let delivery = KINDS.into_iter().map(|kind| match kind {
        "body" => (kind, body.clone()),
        kind => (kind, header(&format!("webhook-{kind}"))),
    });
    (judge.judge(uri.path(), &delivery.collect()), String::new())
}

impl Judge {
    fn judge(&mut self, path: &str, delivery: &Delivery) -> StatusCode {
        let fault = match self.webhooks.get(path) {
            Some(webhooks) => webhooks.iter().find_map(|webhook| fault(webhook, delivery)),
            None => Some("nothing verifies this path".to_owned()),
        };
        if let Some(fault) = fault {
            self.report.faults.push(format!("{path}: {fault}: {delivery:?}"));
            return StatusCode::UNAUTHORIZED;
        }
        let kind = KINDS[self.report.verified % KINDS.len()];
        self.report.verified += 1;
        self.seen.insert((path.to_owned(), delivery["id"].clone()));
        self.report.distinct = self.seen.len();
        let tampered = tampered(&mut self.rng, kind, delivery);
        if self.webhooks[path].iter().all(|webhook| fault_of(webhook, &tampered)) {
            *self.report.refused.get_mut(kind).unwrap() += 1;
        } else {
            self.report.accepted.push(format!("{path}, {kind}: {delivery:?}: {tampered:?}"));
        }
        StatusCode::NO_CONTENT
    }
}

fn fault_of(webhook: &Webhook, delivery: &Delivery) -> bool {
    fault(webhook, delivery).is_some()
}

/// Why the library refuses a delivery.
fn fault(webhook: &Webhook, delivery: &Delivery) -> Option<String> {
    let mut headers = HeaderMap::new();
    for (name, kind) in
        [("webhook-id", "id"), ("webhook-timestamp", "timestamp"), ("webhook-signature", "signature")]
    {
        headers.insert(name, HeaderValue::from_str(&delivery[kind]).unwrap());
    }
    webhook.verify(delivery["body"].as_bytes(), &headers).err().map(|error| error.to_string())
}

/// `text` with another one of `choices` in place of one of its first `most` characters.
fn changed(rng: &mut StdRng, text: &str, choices: &str, most: usize) -> String {
    let mut characters: Vec<_> = text.chars().collect();
    let at = rng.random_range(0..characters.len().min(most));
    let others: Vec<_> = choices.chars().filter(|choice| *choice != characters[at]).collect();
    characters[at] = others[rng.random_range(0..others.len())];
    characters.into_iter().collect()
}

fn tampered(rng: &mut StdRng, kind: &'static str, delivery: &Delivery) -> Delivery {
    let value = &delivery[kind];
    let value = match kind {
        "body" => match rng.random_range(0..4_u8) {
            0 => changed(rng, value, "xyz09{}\", ä", usize::MAX),
            1 => value.chars().take(value.chars().count() - 1).collect(),
            2 => format!("{value} "),
            _ => {
                let at = rng.random_range(0..=value.chars().count());
                let (before, after): (Vec<_>, Vec<_>) =
                    (0..).zip(value.chars()).partition(|(index, _)| *index < at);
                let text =
                    |part: Vec<(usize, char)>| part.into_iter().map(|(_, one)| one).collect::<String>();
                format!("{} {}", text(before), text(after))
            }
        },
        "id" if rng.random_bool(0.75) => changed(rng, value, "0123456789abcdef-", usize::MAX),
        "id" => format!("{value}0"),
        "timestamp" => {
            // Within the tolerance of five minutes, so that the signature alone decides.
            let by = rng.random_range(1..=200) * if rng.random_bool(0.5) { 1 } else { -1 };
            (value.parse::<i64>().unwrap() + by).to_string()
        }
        _ => {
            // The last character but the padding does not count in full.
            let parts = value.split(' ').map(|one| one.split_once(',').unwrap());
            let wrong = parts.map(|(version, text)| format!("{version},{}", changed(rng, text, BASE64, 40)));
            wrong.collect::<Vec<_>>().join(" ")
        }
    };
    let mut tampered = delivery.clone();
    tampered.insert(kind, value);
    tampered
}
