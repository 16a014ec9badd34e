//! Transfers that their owners delete.

use reqwest::Method;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_projections::{compare, transfer::TransferProjection};
use signalbox_workers::{Cleanup, Parts, Worker};
use uuid::Uuid;

use super::{pair::Pair, unreported::Silent};
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
    assert_eq!(world.admin.delete(&path).await.status, 204);
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

/// A worker may crash before it has removed the files, and before it has recorded that; agents may report after the deletion.
#[tokio::test]
async fn a_deletion_is_completed_after_a_crash_between_its_steps() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let parts = world.worker_parts().await;
    for (is_removed, cleaned) in [(false, 1), (true, 2)] {
        let silent = Silent::new(&world).await;
        silent.stage(&world, Some(&parts)).await;
        let data =
            json!({"transfer_id": silent.id.to_string(), "error": "the disk is full", "retryable": false});
        let error = json!({"type": "transfer_error", "data": data});
        silent.target.post("/api/agent/messages", error.clone()).await.expect(200);
        assert_eq!(world.until_ended(silent.id).await["status"], "failed");
        let id = sqlx::query_scalar("SELECT id FROM read.transfers WHERE number = $1").bind(silent.id);
        let id: Uuid = id.fetch_one(&world.servers.pool).await.unwrap();
        assert_eq!(world.admin.delete(&format!("/api/transfers/{}", silent.id)).await.status, 204);
        assert!(!world.staged_files().await.is_empty());
        let complete = json!({"type": "transfer_complete", "data": {"transfer_id": silent.id.to_string(), "duration": 1}});
        for late in [error, complete] {
            silent.target.post("/api/agent/messages", late).await.expect(200);
        }
        let upload = format!("/api/files/{}/upload?filename=a", silent.id);
        silent.source.send(silent.source.request(Method::PUT, &upload).body(bytes(9))).await.error(404);
        if is_removed {
            parts.blobs.delete_transfer(id).await.unwrap();
        }
        for _ in 0..2 {
            let Parts { context, mailbox, blobs, config, .. } = parts.clone();
            Cleanup::new(mailbox, blobs, &config.transfer).step(&context).await.unwrap();
            world.read_models.show_all().await;
            assert_eq!(world.staged_files().await, Vec::<String>::new());
            assert_eq!(world.count_events("staged_bytes_deleted").await, cleaned);
        }
    }
    assert_eq!(world.count_events("late_report_received").await, 4);
    let report = compare::<TransferProjection>(&world.servers.pool).await.unwrap();
    assert_eq!((report.differences, report.set_aside.len()), (0, 0));
    world.finish_with_mail().await;
}
