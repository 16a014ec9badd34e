//! Jobs that their owners delete.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_domain::extraction::{ExtractionJob, ExtractionJobCommand};
use signalbox_projections::{compare, extraction::ExtractionProjection};
use signalbox_test_support::metadata;
use signalbox_workers::{DocumentIndex, ExtractionRunner, Parts, Worker};
use sqlx::Executor as _;
use uuid::Uuid;

use super::{keep_busy, path, submit, until_status, world};
use crate::harness::{World, eventually, seconds};

#[tokio::test]
async fn a_removed_job_leaves_no_file_and_is_shown_only_as_of_a_moment_before() {
    let world = world(|config| config.extraction.input_hours = 10).await;
    let (client, busy) = (&world.admin, keep_busy(&world.admin).await);
    let remove = |id: &str| format!("{}?remove=true", path(id));
    assert!(client.delete(&remove(&busy)).await.error(409).contains("cancel it first"));
    client.delete(&path(&busy)).await.expect(200);
    let id = submit(client, "a.txt", b"Weichenheizung").await;
    let ended = until_status(client, &id, "completed").await;
    let before = world.position().await;
    let stranger = world.user("stranger", "operator").await;
    stranger.delete(&remove(&id)).await.error(404);
    let stale = client.request(Method::DELETE, &remove(&id)).header("if-match", "\"1\"");
    client.send(stale).await.error(412);
    for id in [&id, &busy] {
        assert_eq!(client.delete(&remove(id)).await.status, 204);
        client.delete(&remove(id)).await.error(404);
        for gone in [path(id), format!("{}/result", path(id))] {
            client.get(&gone).await.error(404);
        }
        client.post(&format!("{}/retry", path(id)), json!({})).await.error(404);
    }
    assert_eq!(client.get("/api/v1/jobs").await.expect(200)["total"], 0);
    assert_eq!(client.get("/api/v1/jobs/stats/overview").await.expect(200)["total_jobs"], 0);
    // The worker that read the cancelled one might still write for the length of a lease.
    eventually(seconds(30), async || world.count_events("extraction_result_expired").await == 2).await;
    assert!(world.staged_files().await.is_empty(), "{:?}", world.staged_files().await);
    let past = client.get(&format!("{}?at={before}", path(&id))).await.expect(200);
    assert_eq!((&past["status"], &past["filename"]), (&ended["status"], &ended["filename"]));
    assert_eq!(past["result_content"], Value::Null, "the text is gone");
    stranger.get(&format!("{}?at={before}", path(&id))).await.error(404);
    let now = world.position().await;
    client.get(&format!("{}?at={now}", path(&id))).await.error(404);
    let report = compare::<ExtractionProjection>(&world.servers.pool).await.unwrap();
    assert_eq!((report.differences, report.set_aside.len()), (0, 0));
    world.finish().await;
}

async fn without_workers(clock: &Clock) -> (World, Parts) {
    let world = World::without_workers(clock.clone(), |config| config.extraction.parsers = 1).await;
    let parts = world.worker_parts().await;
    (world, parts)
}

async fn cancel_and_remove(world: &World, id: &str) {
    world.admin.delete(&path(id)).await.expect(200);
    assert_eq!(world.admin.delete(&format!("{}?remove=true", path(id))).await.status, 204);
}

async fn remembered(world: &World) -> i64 {
    let count = sqlx::query_scalar("SELECT count(*) FROM ops.extraction_cache");
    count.fetch_one(&world.servers.pool).await.unwrap()
}

/// A worker that does not know yet that its job was cancelled writes after the deletion.
#[tokio::test]
async fn a_deleted_job_is_cleaned_when_its_worker_can_write_no_more() {
    let clock = Clock::manual(Clock::system().now());
    let (world, parts) = without_workers(&clock).await;
    let index = DocumentIndex::new(parts.store());
    let id = submit(&world.admin, "a.txt", b"Weichenheizung").await;
    let (job, claim) = (id.parse::<Uuid>().unwrap(), clock.new_id());
    let begin = ExtractionJobCommand::Begin { claim, at: clock.now() };
    world.servers.bus.send::<ExtractionJob>(job, None, &metadata(), &begin).await.unwrap();
    cancel_and_remove(&world, &id).await;
    index.step(&parts.context).await.unwrap();
    assert_eq!(world.count_events("extraction_result_expired").await, 0);
    parts.texts.write_bytes(claim, bytes::Bytes::from_static(b"{}")).await.unwrap();
    clock.advance(TimeDelta::minutes(1));
    for _ in 0..2 {
        index.step(&parts.context).await.unwrap();
        world.read_models.show_all().await;
        assert_eq!(world.staged_files().await, Vec::<String>::new());
        assert_eq!(world.count_events("extraction_result_expired").await, 1);
    }
    world.finish().await;
}

/// A worker that stood still for longer than that finds its job deleted, and removes what it has written itself.
#[tokio::test]
async fn a_worker_that_is_late_leaves_no_text_of_a_deleted_job() {
    let clock = Clock::manual(Clock::system().now());
    let (world, parts) = without_workers(&clock).await;
    let index = DocumentIndex::new(parts.store());
    let pool = &world.servers.pool;
    let mut held = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    held.execute("LOCK TABLE ops.extraction_cache IN EXCLUSIVE MODE").await.unwrap();
    let id = submit(&world.admin, "a.txt", b"Weichenheizung").await;
    let Parts { documents, config, .. } = parts.clone();
    let runner = ExtractionRunner::new(documents, parts.store(), config.extraction);
    runner.step(&parts.context).await.unwrap();
    // It has read the document and remembers the text.
    let waits = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'ops.extraction_cache'::regclass)";
    eventually(seconds(30), async || sqlx::query_scalar(waits).fetch_one(pool).await.unwrap()).await;
    cancel_and_remove(&world, &id).await;
    clock.advance(TimeDelta::minutes(1));
    index.step(&parts.context).await.unwrap();
    assert_eq!(world.count_events("extraction_result_expired").await, 1);
    held.rollback().await.unwrap();
    eventually(seconds(30), async || world.staged_files().await.is_empty() && remembered(&world).await == 0)
        .await;
    // As long as its lines are there, it may write again.
    drop(runner);
    assert_eq!(remembered(&world).await, 0);
    world.finish().await;
}
