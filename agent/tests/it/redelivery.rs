//! Repeated messages, and reports that must not be lost.

use crate::harness::{Site, bytes};
use serde_json::{Value, json};

const SIZE: usize = 6 << 20;

#[tokio::test]
async fn a_running_transfer_is_not_started_again() {
    let site = Site::start("auto").await;
    site.folder.write("in/f", bytes(SIZE));
    site.gateway.faults(|faults| faults.uploads_stall_after = Some(SIZE / 2));
    let extra = json!({ "source_path": "f" });
    site.gateway.request("upload", 1, extra.clone());
    site.gateway.nth("transfer_progress", 1).await;
    let again = site.gateway.request("upload", 1, extra);
    site.gateway.acknowledged(again).await;
    site.gateway.faults(|faults| faults.uploads_stall_after = None);
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    site.gateway.echo("all is sent").await;
    assert_eq!((site.gateway.calls("PUT"), site.gateway.reports(1).len()), (1, 1));
}

async fn an_ended_transfer_gives_its_result_again(extra: Value) {
    let site = Site::start("auto").await;
    site.folder.write("in/f", bytes(100));
    site.gateway.request("upload", 1, extra.clone());
    site.gateway.report(1).await;
    let again = site.gateway.request("upload", 1, extra);
    site.gateway.acknowledged(again).await;
    let reports = site
        .gateway
        .until("second report", |inner| {
            let ends = |message: &&Value| message["data"].get("attempt").is_some();
            let ends: Vec<Value> =
                inner.received.iter().map(|(_, message)| message).filter(ends).cloned().collect();
            (ends.len() == 2).then_some(ends)
        })
        .await;
    assert_eq!(reports[0], reports[1]);
    assert!(site.gateway.calls("PUT") <= 1);
}

#[tokio::test]
async fn a_completed_transfer_gives_its_result_again() {
    an_ended_transfer_gives_its_result_again(json!({ "source_path": "f" })).await;
}

#[tokio::test]
async fn a_failed_transfer_gives_its_result_again() {
    an_ended_transfer_gives_its_result_again(json!({ "source_path": "missing" })).await;
}

#[tokio::test]
async fn another_attempt_does_the_work_again() {
    let site = Site::start("auto").await;
    site.gateway.request("upload", 1, json!({ "source_path": "f" }));
    assert_eq!(site.gateway.report(1).await["type"], "transfer_error");
    site.folder.write("in/f", "now it is there");
    site.gateway.request("upload", 1, json!({ "source_path": "f", "attempt": 2 }));
    let complete = site.gateway.nth("transfer_complete", 1).await;
    assert_eq!(complete["attempt"], 2);
}

#[tokio::test]
async fn an_attempt_that_takes_over_stops_the_one_before() {
    let site = Site::start("auto").await;
    site.folder.write("in/f", bytes(SIZE));
    site.gateway.faults(|faults| faults.uploads_stall_after = Some(SIZE / 2));
    site.gateway.request("upload", 1, json!({ "source_path": "f" }));
    site.gateway.nth("transfer_progress", 1).await;
    site.gateway.request("upload", 1, json!({ "source_path": "f", "attempt": 2 }));
    site.gateway.until("second try", |inner| (inner.calls.len() >= 2).then_some(())).await;
    site.gateway.faults(|faults| faults.uploads_stall_after = None);
    let report = site.gateway.report(1).await;
    assert_eq!((&report["type"], &report["data"]["attempt"]), (&json!("transfer_complete"), &json!(2)));
    assert_eq!(site.gateway.reports(1).len(), 1);
}

#[tokio::test]
async fn a_report_that_was_lost_with_its_connection_is_sent_again() {
    let site = Site::start("websocket").await;
    site.folder.write("in/f", bytes(100));
    site.gateway.faults(|faults| faults.hangs_up_on = Some(("transfer_complete", 2)));
    site.gateway.request("upload", 1, json!({ "source_path": "f" }));
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    assert_eq!(site.gateway.shared.lock().faults.hangs_up_on, Some(("transfer_complete", 0)));
    assert_eq!(site.gateway.calls("PUT"), 1);
}

#[tokio::test]
async fn a_message_whose_acknowledgement_was_lost_does_its_work_once() {
    let site = Site::start("websocket").await;
    site.folder.write("in/f", bytes(100));
    site.gateway.faults(|faults| faults.hangs_up_on = Some(("ack", 1)));
    let mail = site.gateway.request("upload", 1, json!({ "source_path": "f" }));
    site.gateway.acknowledged(mail).await;
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    assert_eq!(site.gateway.calls("PUT"), 1);
}

#[tokio::test]
async fn transfers_that_ended_without_a_connection_are_named_after_a_new_one() {
    let site = Site::start("websocket").await;
    site.folder.write("in/f", bytes(100));
    site.gateway.faults(|faults| faults.hangs_up_on = Some(("transfer_complete", 1)));
    site.gateway.request("upload", 31, json!({ "source_path": "f" }));
    let info = site.gateway.nth("agent_info", 2).await;
    assert_eq!(info["active_transfers"], json!(["31"]));
    assert_eq!(site.gateway.report(31).await["type"], "transfer_complete");
}

#[tokio::test]
async fn running_transfers_are_named_after_a_new_connection() {
    let site = Site::start("websocket").await;
    site.folder.write("in/f", bytes(SIZE));
    site.gateway.faults(|faults| {
        faults.uploads_stall_after = Some(SIZE / 2);
        faults.hangs_up_on = Some(("connection_test_response", 1));
    });
    site.gateway.request("upload", 31, json!({ "source_path": "f" }));
    site.gateway.nth("transfer_progress", 1).await;
    site.gateway.post("connection_test", json!({ "request_id": "x" }));
    let info = site.gateway.nth("agent_info", 2).await;
    assert_eq!(info["active_transfers"], json!(["31"]));
    site.gateway.faults(|faults| faults.uploads_stall_after = None);
    assert_eq!(site.gateway.report(31).await["type"], "transfer_complete");
}
