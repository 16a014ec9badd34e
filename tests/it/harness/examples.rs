//! Records an example of each operation from what the tests send and receive, for the description of the interface.
//!
//! `make examples` sets `SIGNALBOX_EXAMPLES`. Operations that have an example keep it, so that a change shows in review; one
//! that does not fit any more is deleted from the file by hand and recorded again.

use std::{
    collections::BTreeMap,
    fs,
    sync::{LazyLock, Mutex, PoisonError},
};

use reqwest::Request;
use serde_json::{Map, Value, json};

use super::{Answer, conformance, normal};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gateway/src/openapi/examples.json");
/// Longest text of an answer that is not JSON, in bytes.
const SHOWN: usize = 400;

static RECORDER: LazyLock<Option<Mutex<Recorder>>> =
    LazyLock::new(|| std::env::var_os("SIGNALBOX_EXAMPLES").map(|_| Mutex::new(Recorder::open())));

struct Recorder {
    /// In the file before this run.
    kept: BTreeMap<String, Value>,
    /// The best one of each operation so far.
    found: BTreeMap<String, (usize, Value)>,
}

/// The body of a request.
pub struct Sent(Option<Value>);

impl Sent {
    /// The body of `request`; empty unless examples are recorded.
    pub fn of(request: &Request) -> Self {
        if RECORDER.is_none() {
            return Self(None);
        }
        let bytes = request.body().and_then(reqwest::Body::as_bytes).unwrap_or_default();
        let kind =
            request.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        Self(match kind {
            kind if kind.starts_with("multipart/form-data") => form(&String::from_utf8_lossy(bytes)),
            kind if kind.starts_with("application/json") => serde_json::from_slice(bytes).ok(),
            _ => None,
        })
    }
}

/// The fields of a form whose parts are divided by `--b`.
fn form(text: &str) -> Option<Value> {
    let mut fields = Map::new();
    for part in text.split("--b\r\n").skip(1) {
        let (head, value) = part.split_once("\r\n\r\n")?;
        let name = head.split("name=\"").nth(1)?.split('"').next()?;
        let value = value.trim_end_matches("--b--\r\n").trim_end_matches("\r\n");
        let is_file = head.contains("filename=");
        let value = if is_file { json!("(the bytes of the file)") } else { json!(value) };
        let value = if name == "files" { json!([value]) } else { value };
        fields.insert(name.to_owned(), value);
    }
    Some(Value::Object(fields))
}

/// Takes `answer` to what was `sent` as an example, if it is better than those before.
pub fn note(sent: Sent, answer: &Answer) {
    let Some(recorder) = RECORDER.as_ref() else { return };
    let Some((id, operation)) = conformance::operation(answer) else { return };
    if answer.status >= 400 || !answer.is_whole {
        return;
    }
    let Some(example) = example(sent, answer, operation) else { return };
    recorder.lock().unwrap_or_else(PoisonError::into_inner).take(id, example);
}

fn example(Sent(sent): Sent, answer: &Answer, operation: &Value) -> Option<Value> {
    let mut example = Map::new();
    if operation["requestBody"].is_object() {
        example.insert("request".to_owned(), only_described(sent?, operation));
    }
    let kind = answer.header("content-type").unwrap_or_default().split(';').next().unwrap_or_default();
    example.insert("status".to_owned(), json!(answer.status.to_string()));
    let described = &operation["responses"][answer.status.to_string()]["content"][kind]["schema"];
    if kind.ends_with("json") && described.is_object() {
        example.insert("answer".to_owned(), serde_json::from_slice(&answer.body).ok()?);
    } else if described["format"] != "binary" && described.is_object() {
        let text = String::from_utf8(answer.body.clone()).ok()?;
        let lines = text.split_inclusive('\n').scan(0, |length, line| {
            *length += line.len();
            (*length <= SHOWN).then_some(line)
        });
        example.insert("answer".to_owned(), json!(lines.collect::<String>()));
    }
    if !kind.is_empty() {
        example.insert("media".to_owned(), json!(kind));
    }
    let mut example = Value::Object(example);
    normal::normalise(&mut example);
    Some(example)
}

/// `request` without the fields that its schema does not know: other names of them, and what is ignored.
fn only_described(mut request: Value, operation: &Value) -> Value {
    let content = operation["requestBody"]["content"].as_object().into_iter().flatten();
    let known: Vec<&Value> = content
        .filter_map(|(_, media)| media["schema"]["$ref"].as_str()?.rsplit('/').next())
        .map(|name| &conformance::description()["components"]["schemas"][name]["properties"])
        .collect();
    if let (Some(fields), false) = (request.as_object_mut(), known.is_empty()) {
        fields.retain(|field, _| known.iter().any(|known| known.get(field).is_some()));
    }
    request
}

impl Recorder {
    fn open() -> Self {
        let kept = fs::read_to_string(FILE).unwrap();
        Self { kept: serde_json::from_str(&kept).unwrap(), found: BTreeMap::new() }
    }

    fn take(&mut self, id: &str, example: Value) {
        if self.kept.contains_key(id) {
            return;
        }
        let worth = worth(&example);
        let is_better = self.found.get(id).is_none_or(|(known, before)| {
            (worth, std::cmp::Reverse(example.to_string())) > (*known, std::cmp::Reverse(before.to_string()))
        });
        if is_better {
            self.found.insert(id.to_owned(), (worth, example));
            let found = self.found.iter().map(|(id, (_, example))| (id, example));
            let all: BTreeMap<_, _> = self.kept.iter().chain(found).collect();
            fs::write(FILE, serde_json::to_string_pretty(&all).unwrap() + "\n").unwrap();
        }
    }
}

/// How much `example` shows: the more fields have a value the better, and the fewer texts are made to be refused.
fn worth(example: &Value) -> usize {
    match example {
        Value::Object(fields) => fields.values().map(worth).sum(),
        Value::Array(entries) => entries.first().map_or(0, worth),
        Value::String(text) if text.len() > 200 || !text.is_ascii() => 0,
        Value::String(text) if text.is_empty() => 1,
        Value::Null => 0,
        _ => 2,
    }
}
