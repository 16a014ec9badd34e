//! Makes what is random in an example the same in every run, and what is secret harmless.

use std::collections::HashMap;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;
use uuid::Uuid;

/// Entries of a list that are shown.
const ENTRIES: usize = 2;
/// SHA-256 of no bytes.
const DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
const TIME: &str = "2026-03-01T09:30:00Z";
const JWT: &str = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl";
/// Fields that hold durations.
const DURATIONS: [&str; 4] = ["duration_ms", "processing_time_ms", "round_trip_ms", "uptime_seconds"];

struct Normal {
    now: DateTime<Utc>,
    ids: HashMap<String, String>,
}

/// Normalises `example` in place.
pub fn normalise(example: &mut Value) {
    let mut normal = Normal { now: Clock::system().now(), ids: HashMap::new() };
    normal.walk("", example);
}

impl Normal {
    fn walk(&mut self, field: &str, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.walk(name, value);
                }
            }
            Value::Array(entries) => {
                entries.truncate(ENTRIES);
                entries.iter_mut().for_each(|entry| self.walk(field, entry));
            }
            Value::String(text) => *text = self.text(field, text),
            Value::Number(_) if DURATIONS.contains(&field) => *value = json!(12),
            _ => {}
        }
    }

    fn text(&mut self, field: &str, text: &str) -> String {
        if text.starts_with("eyJ") {
            return JWT.to_owned();
        }
        if field.contains("password") {
            return "a long password".to_owned();
        }
        if let Some(mut nested) = nested(text) {
            self.walk(field, &mut nested);
            return nested.to_string();
        }
        if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return DIGEST.to_owned();
        }
        if Uuid::try_parse(text).is_ok() && !text.contains('-') {
            return self.id(text).replace('-', "");
        }
        let secret =
            ["token", "secret", "callback_secret", "public_key"].contains(&field) && text.contains('_');
        if let (true, Some((prefix, _))) = (secret, text.split_once('_')) {
            return format!("{prefix}_3q2-7wAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA");
        }
        self.time(text).unwrap_or_else(|| self.words(text))
    }

    /// The time that stands for `text`, if that is about now.
    fn time(&self, text: &str) -> Option<String> {
        let aware = DateTime::parse_from_rfc3339(text).ok().map(|time| time.to_utc());
        let naive = || text.parse::<NaiveDateTime>().ok().map(|time| time.and_utc());
        let time = aware.or_else(naive)?;
        let is_now = (self.now - time).abs() < TimeDelta::days(400);
        is_now.then(|| {
            if text.ends_with('Z') || aware.is_some() { TIME } else { "2026-03-01T09:30:00.000000" }
                .to_owned()
        })
    }

    /// `text` with its ids, ports and folders replaced.
    fn words(&mut self, text: &str) -> String {
        let mut shown = String::new();
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            if let Some(id) = rest.get(..36).filter(|id| Uuid::try_parse(id).is_ok()) {
                shown.push_str(&self.id(id));
                rest = &rest[36..];
            } else if let Some(after) = rest.strip_prefix("127.0.0.1:") {
                shown.push_str("127.0.0.1:8080");
                rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            } else if let Some(after) = rest.strip_prefix("/tmp/") {
                shown.push_str("/srv/");
                rest = after;
            } else {
                shown.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
        shown
    }

    fn id(&mut self, id: &str) -> String {
        let next = self.ids.len() + 1;
        self.ids.entry(id.to_owned()).or_insert_with(|| format!("019ca8f2-5b40-7000-8000-{next:012}")).clone()
    }
}

/// The JSON object or array that `text` holds.
fn nested(text: &str) -> Option<Value> {
    let is_json = text.starts_with('{') || text.starts_with('[');
    is_json.then(|| serde_json::from_str(text).ok())?
}
