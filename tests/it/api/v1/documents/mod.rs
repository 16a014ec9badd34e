//! Documents become text.

mod fairness;
mod google_vision;
mod hostile;
mod jobs;
mod kept;
mod killed;
mod losing_nothing;
mod options;
mod pages;
mod pdf;
mod reading;
mod refusing;
mod searchable;
mod tika;

use std::path::Path;

use reqwest::Method;
use serde_json::Value;
use signalbox_clock::Clock;
use signalbox_config::Config;

use crate::harness::{Answer, Client, World};

pub const EXTRACT: &str = "/api/v1/extract";

/// A service that reads documents, with two parsers.
async fn world(adjust: impl FnOnce(&mut Config)) -> World {
    World::with(|config| {
        config.extraction.parsers = 2;
        config.limits.anonymous_extractions_per_minute = 1000;
        adjust(config);
    })
    .await
}

/// Requests wait for a parser at most for `seconds`.
async fn world_with_timeout(seconds: u64, adjust: impl FnOnce(&mut Config)) -> World {
    world(|config| {
        config.extraction.patience_seconds = seconds;
        adjust(config);
    })
    .await
}

/// A world whose clock the test moves, and whose logins last for weeks.
async fn world_for_weeks() -> (World, Clock) {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |config| {
        config.extraction.parsers = 1;
        config.identity.token_hours = 1000;
    })
    .await;
    (world, clock)
}

/// A document of `tests/documents`.
pub fn sample(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents").join(name)).unwrap()
}

/// A part of a form: its name, the name of its file if it is one, and its bytes.
type Part<'a> = (&'a str, Option<&'a str>, &'a [u8]);

/// A form as browsers write it.
fn form(parts: &[Part<'_>]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, file, bytes) in parts {
        let file =
            file.map_or_else(String::new, |file| format!("; filename=\"{file}\"\r\nContent-Type: text/odd"));
        body.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").bytes());
        body.extend_from_slice(bytes);
        body.extend(b"\r\n");
    }
    body.extend(b"--b--\r\n");
    body
}

async fn send_form(client: &Client, path: &str, parts: &[Part<'_>]) -> Answer {
    let request =
        client.request(Method::POST, path).header("content-type", "multipart/form-data; boundary=b");
    client.send(request.body(form(parts))).await
}

/// Sends the document alone.
pub async fn send(client: &Client, path: &str, name: &str, bytes: &[u8]) -> Answer {
    send_form(client, path, &[("file", Some(name), bytes)]).await
}

/// The document as JSON.
async fn document(client: &Client, name: &str, bytes: &[u8]) -> Value {
    let path = format!("{EXTRACT}?output_format=json");
    let answer = send(client, &path, name, bytes).await.expect(200);
    serde_json::from_str(answer["content"].as_str().unwrap()).unwrap()
}

/// The text of a sample as `format`.
async fn text(client: &Client, name: &str, format: &str) -> String {
    let path = format!("{EXTRACT}?output_format={format}");
    let answer = send(client, &path, name, &sample(name)).await.expect(200);
    answer["content"].as_str().unwrap().to_owned()
}
