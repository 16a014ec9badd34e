//! Documents that are read in the background.

mod ending;
mod keeping;
mod sharing;
mod submitting;
mod telling;
mod working;

use std::{fmt::Write as _, panic::Location};

use serde_json::Value;
use tokio::time::timeout;

use super::{Part, sample, send, send_form, world};
use crate::harness::{Client, seconds};

const JOBS: &str = "/api/v1/jobs";

fn path(id: &str) -> String {
    format!("{JOBS}/{id}")
}

/// Submits a document; gives back the key of its job.
async fn submit(client: &Client, name: &str, bytes: &[u8]) -> String {
    let answer = send(client, JOBS, name, bytes).await.expect(202);
    answer["job_id"].as_str().unwrap().to_owned()
}

/// Waits until the job is as wanted; gives it back.
#[track_caller]
fn until(client: &Client, id: &str, mut is_so: impl FnMut(&Value) -> bool) -> impl Future<Output = Value> {
    let (client, path, place) = (client.clone(), path(id), Location::caller());
    async move {
        let mut last = Value::Null;
        let wanted = async {
            loop {
                last = client.get(&path).await.expect(200);
                if is_so(&last) {
                    return;
                }
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        if timeout(seconds(60), wanted).await.is_err() {
            panic!("{place}: in vain; the job is {last}");
        }
        last
    }
}

/// Waits until the job has `status`; gives it back.
#[track_caller]
fn until_status(client: &Client, id: &str, status: &'static str) -> impl Future<Output = Value> {
    until(client, id, move |job| job["status"] == status)
}

/// A PDF with one page that is shown `pages` times: quickly written, and read for a long time.
fn book(pages: usize) -> Vec<u8> {
    let mut text = String::from("BT /F1 9 Tf 40 780 Td 11 TL\n");
    for line in 0..60 {
        let _ = writeln!(
            text,
            "(Line {line}: the quick brown fox jumps over the lazy dog, again and again.) Tj T*"
        );
    }
    text.push_str("ET");
    let kids = "3 0 R ".repeat(pages);
    let objects = [
        "<</Type/Catalog/Pages 2 0 R>>".to_owned(),
        format!("<</Type/Pages/Count {pages}/Kids[{kids}]>>"),
        "<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>"
            .to_owned(),
        format!("<</Length {}>>stream\n{text}\nendstream", text.len()),
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>".to_owned(),
    ];
    let (mut pdf, mut table) = (String::from("%PDF-1.4\n"), String::from("xref\n0 6\n0000000000 65535 f \n"));
    for (number, object) in objects.iter().enumerate() {
        let _ = writeln!(table, "{:010} 00000 n ", pdf.len());
        let _ = writeln!(pdf, "{} 0 obj{object}endobj", number + 1);
    }
    let start = pdf.len();
    let _ = write!(pdf, "{table}trailer<</Size 6/Root 1 0 R>>\nstartxref\n{start}\n%%EOF");
    pdf.into_bytes()
}

/// Submits a document that takes long, and waits until it is being read.
async fn keep_busy(client: &Client) -> String {
    let id = submit(client, "book.pdf", &book(4900)).await;
    until_status(client, &id, "processing").await;
    id
}
