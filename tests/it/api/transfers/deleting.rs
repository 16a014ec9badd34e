//! Transfers that their owners delete.

use reqwest::Method;
use serde_json::json;
use signalbox_projections::{compare, transfer::TransferProjection};

use super::pair::Pair;
use crate::harness::{Transport::Polling, World, bytes, eventually, seconds};

#[tokio::test]
async fn a_deleted_transfer_is_shown_only_as_of_a_moment_before() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("file", bytes(10_000));
    let running = pair.start(&world, Polling, Polling);
    let job = pair.job(&world, "file", "file", json!({})).await;
    let id = pair.run(&world, job).await;
    let path = format!("/api/transfers/{id}");
    let ended = world.until_ended(id).await;
    assert_eq!(ended["status"], "completed");
    assert!(!world.staged_files().await.is_empty(), "files are kept for hours");
    let before = world.position().await;
    let stale = world.admin.request(Method::DELETE, &path).header("if-match", "\"1\"");
    world.admin.send(stale).await.error(412);
    let stranger = world.user("stranger", "admin").await;
    stranger.delete(&path).await.error(404);
    world.user("viewer", "viewer").await.delete(&path).await.error(403);
    let delete = || world.admin.request(Method::DELETE, &path).header("idempotency-key", "once");
    for _ in 0..2 {
        assert_eq!(world.admin.send(delete()).await.status, 204);
    }
    world.admin.delete(&path).await.error(404);
    world.admin.get(&path).await.error(404);
    world.admin.post(&format!("{path}/cancel"), json!({})).await.error(404);
    assert_eq!(world.admin.get("/api/transfers").await.expect(200), json!([]));
    world.as_agent(&pair.to).get(&format!("/api/files/{id}/download")).await.error(404);
    eventually(seconds(10), async || world.staged_files().await.is_empty()).await;
    assert_eq!(world.admin.get(&format!("{path}?at={before}")).await.expect(200), ended);
    let now = world.position().await;
    world.admin.get(&format!("{path}?at={now}")).await.error(404);
    stranger.get(&format!("{path}?at={before}")).await.error(404);
    // The job shows its runs as of a moment, too.
    let job = format!("/api/jobs/{job}");
    assert_eq!(
        world.admin.get(&format!("{job}?at={before}")).await.expect(200)["last_transfer_id"],
        json!(id)
    );
    let report = compare::<TransferProjection>(&world.servers.pool).await.unwrap();
    assert_eq!((report.differences, report.set_aside.len()), (0, 0));
    running.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_transfer_under_way_is_cancelled_before_it_is_deleted() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    let id = pair.transfer(&world, "file", "file").await;
    let path = format!("/api/transfers/{id}");
    let refused = world.admin.delete(&path).await.error(409);
    assert!(refused.contains("cancel it first"), "{refused}");
    world.admin.post(&format!("{path}/cancel"), json!({})).await.expect(200);
    assert_eq!(world.admin.delete(&path).await.status, 204);
    eventually(seconds(10), async || world.count_events("staged_bytes_deleted").await == 1).await;
    world.finish_with_mail().await;
}
