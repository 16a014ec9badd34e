//! Documents that are read in the background.

mod ending;
mod handing_over;
mod keeping;
mod notifying;
mod removing;
mod sharing;
mod submitting;
mod working;

use reqwest::{Method, RequestBuilder};
use serde_json::Value;

use super::{Part, sample, send, send_form, world};
use crate::harness::Client;

const JOBS: &str = "/api/v1/jobs";

fn path(id: &str) -> String {
    format!("{JOBS}/{id}")
}

/// Submits a document; returns the key of its job.
async fn submit(client: &Client, name: &str, bytes: &[u8]) -> String {
    let answer = send(client, JOBS, name, bytes).await.expect(202);
    answer["job_id"].as_str().unwrap().to_owned()
}

/// The request that submits a document by `key`.
fn submission(client: &Client, key: &str, bytes: &[u8]) -> RequestBuilder {
    let request = client.request(Method::POST, JOBS).header("idempotency-key", key);
    let request = request.header("content-type", "multipart/form-data; boundary=b");
    request.body(super::form(&[("file", Some("a.txt"), bytes)]))
}

/// Waits until the job meets the condition; returns it.
#[track_caller]
fn until(client: &Client, id: &str, is_so: impl FnMut(&Value) -> bool) -> impl Future<Output = Value> {
    client.until(path(id), is_so)
}

#[track_caller]
pub(super) fn until_status(client: &Client, id: &str, status: &'static str) -> impl Future<Output = Value> {
    until(client, id, move |job| job["status"] == status)
}

/// Pages of a document that takes long.
const PAGES: u32 = 60;

/// A TIFF whose frames all show the same noise, which takes long to recognise; each `seed` makes a different one.
fn noise(mut seed: u32) -> Vec<u8> {
    const SIDE: u32 = 1600;
    let mut tiff = b"II*\0".to_vec();
    let pixels = tiff.len() as u32 + 4;
    tiff.extend((pixels + SIDE * SIDE).to_le_bytes());
    tiff.extend((0..SIDE * SIDE).map(|_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 28 < 6 { 0_u8 } else { 255 }
    }));
    for frame in 1..=PAGES {
        let entries = [
            (256, SIDE),
            (257, SIDE),
            (258, 8),
            (259, 1),
            (262, 1),
            (273, pixels),
            (277, 1),
            (278, SIDE),
            (279, SIDE * SIDE),
        ];
        tiff.extend(9_u16.to_le_bytes());
        for (tag, value) in entries {
            tiff.extend(u16::to_le_bytes(tag));
            tiff.extend(4_u16.to_le_bytes());
            tiff.extend(1_u32.to_le_bytes());
            tiff.extend(value.to_le_bytes());
        }
        let next = if frame < PAGES { tiff.len() as u32 + 4 } else { 0 };
        tiff.extend(next.to_le_bytes());
    }
    tiff
}

/// Submits a document that takes long, and waits until it is being read.
async fn keep_busy(client: &Client) -> String {
    let id = submit(client, "noise.tiff", &noise(7)).await;
    until_status(client, &id, "processing").await;
    id
}
