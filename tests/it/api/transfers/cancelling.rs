//! Transfers that a user stops.

use serde_json::json;

use super::pair::Pair;
use crate::harness::{
    Link,
    Transport::{Polling, Websocket},
    World, bytes, eventually, seconds,
};

async fn cancel(world: &World, id: i64) {
    let cancelled = world.admin.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.expect(200);
    assert_eq!((&cancelled["status"], &cancelled["phase"]), (&json!("cancelled"), &json!("done")));
    assert!(cancelled["finished_at"].is_string());
}

#[tokio::test]
async fn a_cancelled_upload_is_cut_and_leaves_nothing() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("big", bytes(4_000_000));
    let link = Link::to(world.address).await;
    let from = pair.start_source(&link.url(), Websocket);
    let to = pair.start_target(&world.anonymous().url(""), Polling);
    world.until_agent(&pair.from, "online").await;
    // More than a segment, without which nothing is in a bucket.
    link.hold_uploads_after(2_000_000);
    let id = pair.transfer(&world, "big", "big").await;
    world.until_transfer(id, |transfer| transfer["bytes_transferred"].as_i64() > Some(0)).await;
    // The agent counts what it has sent, not what was kept.
    eventually(seconds(10), async || !world.staged_files().await.is_empty()).await;
    cancel(&world, id).await;
    eventually(seconds(10), async || world.staged_files().await.is_empty()).await;
    eventually(seconds(10), async || world.count_events("staged_bytes_deleted").await == 1).await;
    world.admin.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.error(409);
    let report = json!({"type": "transfer_complete", "data": {"transfer_id": id.to_string(), "duration": 1}});
    world.as_agent(&pair.from).post("/api/agent/messages", report).await.expect(200);
    let after = world.admin.get(&format!("/api/transfers/{id}")).await.expect(200);
    assert_eq!((&after["status"], &after["error"]), (&json!("cancelled"), &json!(null)));
    // The agent was notified: the same file can be sent again at once.
    let again = pair.transfer(&world, "big", "again").await;
    assert_eq!(world.until_ended(again).await["status"], "completed");
    assert_eq!(pair.target.list(""), ["again"]);
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_cancelled_download_is_cut_and_leaves_no_half_file() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("big", bytes(8_000_000));
    let link = Link::to(world.address).await;
    let from = pair.start_source(&world.anonymous().url(""), Polling);
    let to = pair.start_target(&link.url(), Websocket);
    world.until_agent(&pair.to, "online").await;
    link.hold_downloads_after(1_000_000);
    let id = pair.transfer(&world, "big", "big").await;
    world.until_phase(id, "downloading").await;
    eventually(seconds(10), async || !pair.target.list("").is_empty()).await;
    cancel(&world, id).await;
    eventually(seconds(10), async || world.staged_files().await.is_empty()).await;
    eventually(seconds(10), async || pair.target.list("").is_empty()).await;
    let late = json!({"type": "transfer_error", "data": {"transfer_id": id.to_string(), "error": "stopped"}});
    world.as_agent(&pair.to).post("/api/agent/messages", late).await.expect(200);
    let after = world.admin.get(&format!("/api/transfers/{id}")).await.expect(200);
    assert_eq!((&after["status"], &after["error"]), (&json!("cancelled"), &json!(null)));
    assert!(world.count_events("late_report_received").await >= 1);
    world.as_agent(&pair.to).get(&format!("/api/files/{id}/download")).await.error(404);
    // An agent that stops would get unacknowledged messages again.
    world.until_mail_is_gone().await;
    from.stop().await;
    to.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_transfer_cancelled_before_its_agent_came_is_never_begun() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", bytes(10));
    let id = pair.transfer(&world, "f", "f").await;
    world.until_phase(id, "dispatched").await;
    cancel(&world, id).await;
    eventually(seconds(10), async || world.count_events("staged_bytes_deleted").await == 1).await;
    let agents = pair.start(&world, Websocket, Websocket);
    let next = pair.transfer(&world, "f", "g").await;
    assert_eq!(world.until_ended(next).await["status"], "completed");
    assert_eq!(pair.target.list(""), ["g"]);
    assert_eq!(world.count_events("late_report_received").await, 0);
    agents.stop().await;
    world.finish().await;
}
