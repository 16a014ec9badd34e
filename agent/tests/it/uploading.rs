//! Uploads of single files.

use crate::{
    gateway_files::digest,
    harness::{Site, bytes},
};
use serde_json::json;
use std::time::Duration;

async fn uploads_a_file(transport: &str) {
    let site = Site::start(transport).await;
    let content = bytes(3 << 20);
    site.folder.write("in/sub/big file \u{fc}.bin", &content);
    let mail = site.gateway.request("upload", 7, json!({ "source_path": "sub/big file \u{fc}.bin" }));
    let report = site.gateway.report(7).await;
    assert_eq!(report["type"], "transfer_complete", "{report}");
    assert_eq!(report["data"]["sha256"], digest(&content));
    assert_eq!((&report["data"]["files"], &report["data"]["bytes"]), (&json!(1), &json!(content.len())));
    assert_eq!(report["data"]["attempt"], 1);
    assert!(site.gateway.staged(7)["big file \u{fc}.bin"].bytes == content);
    site.gateway.acknowledged(mail).await;
    site.agent.stop().await;
}

#[tokio::test]
async fn a_file_is_uploaded_over_websocket() {
    uploads_a_file("websocket").await;
}

#[tokio::test]
async fn a_file_is_uploaded_over_polling() {
    uploads_a_file("polling").await;
}

#[tokio::test]
async fn an_empty_file_is_uploaded() {
    let site = Site::start("auto").await;
    site.folder.write("in/empty", "");
    site.gateway.request("upload", 1, json!({ "source_path": site.folder.text("in/empty"), "attempt": 2 }));
    assert_eq!(site.gateway.report(1).await["data"]["sha256"], digest(b""));
    assert!(site.gateway.staged(1)["empty"].complete);
}

#[tokio::test]
async fn faults_of_the_source_are_reported_and_not_retried() {
    let site = Site::start("auto").await;
    site.folder.write("in/file", "x");
    site.folder.write("secret", "x");
    for (id, path, tree, part) in [
        (1, "nothing", false, "does not exist"),
        (2, "../secret", false, "outside"),
        (3, "/etc/passwd", false, "outside"),
        (4, ".", false, "is a directory"),
        (5, "file", true, "not a directory"),
    ] {
        site.gateway.request("upload", id, json!({ "source_path": path, "tree": tree }));
        let report = site.gateway.report(id).await;
        assert!(report["data"]["error"].as_str().unwrap().contains(part), "{report}");
        assert_eq!(report["data"]["retryable"], false, "{report}");
    }
    assert_eq!(site.gateway.calls("PUT"), 0);
}

#[tokio::test]
async fn a_gateway_that_stored_other_bytes_is_reported() {
    let site = Site::start("auto").await;
    site.folder.write("in/file", "content");
    site.gateway.faults(|faults| faults.lies_about_digests = true);
    site.gateway.request("upload", 1, json!({ "source_path": "file" }));
    let report = site.gateway.report(1).await;
    assert!(report["data"]["error"].as_str().unwrap().contains("SHA-256"), "{report}");
    assert_eq!(report["data"]["retryable"], true);
}

#[tokio::test]
async fn a_transfer_that_is_gone_ends_in_silence() {
    let site = Site::start_with("auto", |config| config.concurrent_transfers = 1).await;
    // Large enough that the answer arrives while the body is still being sent.
    site.folder.write("in/file", bytes(16 << 20));
    for (id, status) in [(1, 404), (2, 409)] {
        site.gateway.answer(id, status);
        site.gateway.request("upload", id, json!({ "source_path": "file" }));
    }
    // With one transfer at a time, the third one finishes after the others.
    site.gateway.request("upload", 3, json!({ "source_path": "file" }));
    assert_eq!(site.gateway.report(3).await["type"], "transfer_complete");
    assert!(site.gateway.reports(1).is_empty() && site.gateway.reports(2).is_empty());
}

#[tokio::test]
async fn a_file_beyond_the_limit_fails_for_good() {
    let site = Site::start("auto").await;
    site.folder.write("in/file", "content");
    site.gateway.answer(1, 413);
    site.gateway.request("upload", 1, json!({ "source_path": "file" }));
    let report = site.gateway.report(1).await;
    assert_eq!((&report["type"], &report["data"]["retryable"]), (&json!("transfer_error"), &json!(false)));
}

#[tokio::test]
async fn a_gateway_without_its_database_is_tried_again() {
    let site = Site::start("auto").await;
    site.folder.write("in/file", "content");
    site.gateway.answer(1, 503);
    site.gateway.request("upload", 1, json!({ "source_path": "file" }));
    site.gateway.until("second try", |inner| (inner.calls.len() >= 2).then_some(())).await;
    site.gateway.faults(|faults| faults.answers.clear());
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
}

#[tokio::test]
async fn an_upload_is_tried_again_when_the_connection_has_broken() {
    let site = Site::start_with("websocket", |config| {
        config.timing.connect = Duration::from_millis(500);
        config.timing.heartbeat = Duration::from_millis(100);
    })
    .await;
    site.folder.write("in/file", bytes(100));
    // The gateway has all bytes and never answers, as when the network fell silent.
    site.gateway.faults(|faults| faults.uploads_stall_after = Some(100));
    site.gateway.request("upload", 1, json!({ "source_path": "file" }));
    site.gateway.until("the upload", |inner| (!inner.calls.is_empty()).then_some(())).await;
    site.gateway.faults(|faults| faults.hangs_up_on = Some(("heartbeat", 1)));
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    assert_eq!(site.gateway.calls("PUT"), 2);
}

#[tokio::test]
async fn progress_is_reported_while_bytes_move() {
    let site = Site::start("auto").await;
    site.folder.write("in/file", bytes(8 << 20));
    site.gateway.faults(|faults| faults.uploads_stall_after = Some(1 << 20));
    site.gateway.request("upload", 1, json!({ "source_path": "file" }));
    let progress = site.gateway.nth("transfer_progress", 1).await;
    assert_eq!(progress["total_bytes"], 8 << 20);
    site.gateway.faults(|faults| faults.uploads_stall_after = None);
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
}

#[tokio::test]
async fn a_refusal_is_reported_with_the_gateways_reason() {
    let site = Site::start("auto").await;
    site.folder.write("in/file", "content");
    site.gateway.answer(1, 403);
    site.gateway.request("upload", 1, json!({ "source_path": "file" }));
    let report = site.gateway.report(1).await;
    assert_eq!(report["data"]["error"], "The gateway answered 403 Forbidden: on purpose.", "{report}");
}
