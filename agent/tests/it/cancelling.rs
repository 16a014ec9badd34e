//! Transfers that the gateway cancels.

use crate::{
    gateway_files::digest,
    harness::{Site, bytes},
};
use serde_json::json;

const SIZE: usize = 6 << 20;

#[tokio::test]
async fn a_cancelled_download_stops_and_leaves_nothing() {
    let site = Site::start("auto").await;
    let content = bytes(SIZE);
    site.gateway.stage(1, "f", &content);
    site.gateway.faults(|faults| faults.downloads_stall_after = Some(SIZE / 2));
    let extra = json!({ "destination_path": "f", "size": SIZE, "sha256": digest(&content) });
    site.gateway.request("download", 1, extra);
    site.gateway.nth("transfer_progress", 1).await;
    assert_eq!(site.folder.list("in"), [".f.1.signalbox-part"]);
    site.gateway.post("cancel_transfer", json!({ "transfer_id": "1" }));
    // The next attempt waits for the cancelled one, so it finishes after the clean-up.
    site.gateway.faults(|faults| faults.downloads_stall_after = None);
    site.gateway.request("download", 1, json!({ "destination_path": "nothing/../x", "attempt": 2 }));
    assert_eq!(site.gateway.report(1).await["data"]["attempt"], 2);
    assert!(site.folder.list("in").is_empty());
    assert_eq!(site.gateway.reports(1).len(), 1);
}

#[tokio::test]
async fn a_cancelled_upload_stops() {
    let site = Site::start("auto").await;
    site.folder.write("in/f", bytes(SIZE));
    site.gateway.faults(|faults| faults.uploads_stall_after = Some(SIZE / 2));
    site.gateway.request("upload", 1, json!({ "source_path": "f" }));
    site.gateway.nth("transfer_progress", 1).await;
    site.gateway.post("cancel_transfer", json!({ "transfer_id": "1" }));
    site.gateway.request("upload", 1, json!({ "source_path": "../f", "attempt": 2 }));
    assert_eq!(site.gateway.report(1).await["data"]["attempt"], 2);
    site.gateway.faults(|faults| faults.uploads_stall_after = None);
    assert!(!site.gateway.staged(1)["f"].complete);
}

#[tokio::test]
async fn a_transfer_that_waits_for_its_turn_can_be_cancelled() {
    let site = Site::start_with("auto", |config| config.concurrent_transfers = 1).await;
    site.folder.write("in/f", bytes(SIZE));
    site.gateway.faults(|faults| faults.uploads_stall_after = Some(SIZE / 2));
    site.gateway.request("upload", 1, json!({ "source_path": "f" }));
    site.gateway.nth("transfer_progress", 1).await;
    site.gateway.request("upload", 2, json!({ "source_path": "f" }));
    site.gateway.post("cancel_transfer", json!({ "transfer_id": "2" }));
    site.gateway.post("cancel_transfer", json!({ "transfer_id": "77" }));
    site.gateway.echo("after the cancellation").await;
    site.gateway.faults(|faults| faults.uploads_stall_after = None);
    assert_eq!(site.gateway.report(1).await["type"], "transfer_complete");
    site.gateway.request("upload", 3, json!({ "source_path": "f" }));
    assert_eq!(site.gateway.report(3).await["type"], "transfer_complete");
    assert_eq!(site.gateway.calls("PUT 2"), 0);
}
