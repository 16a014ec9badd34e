//! Workers that share the work, crash, and are restarted.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_domain::extraction::{ExtractionJob, ExtractionJobCommand};
use signalbox_test_support::{Setup, metadata};
use uuid::Uuid;

use super::{keep_busy, noise, path, submit, until, until_status};
use crate::harness::{World, eventually, seconds};

#[tokio::test]
async fn two_processes_share_the_work_and_do_nothing_twice() {
    let mut world = one_worker(&Clock::system()).await;
    world.another_process().await.work().await;
    let mut ids = BTreeSet::new();
    for number in 0..40 {
        ids.insert(submit(&world.admin, "a.txt", format!("Text {number}").as_bytes()).await);
    }
    assert_eq!(ids.len(), 40);
    for id in &ids {
        let job = until_status(&world.admin, id, "completed").await;
        assert_eq!(job["attempts"], 1, "{job}");
    }
    assert_eq!(world.count_events("extraction_begun").await, 40);
    assert_eq!(world.count_events("extraction_completed").await, 40);
    world.finish().await;
}

/// A process that stops gives its job back, and another one reads it, in the same attempt.
#[tokio::test]
async fn a_process_that_stops_gives_its_work_back() {
    let mut world = one_worker(&Clock::system()).await;
    let first = keep_busy(&world.admin).await;
    world.another_process().await.work().await;
    let second = submit(&world.admin, "other.tiff", &noise(8)).await;
    until_status(&world.admin, &second, "processing").await;
    world.stop_last().await;
    // A stopping worker tries for 2 s: where nodes are killed just then, the claim expires instead.
    let is_given_back = world.count_events("extraction_given_back").await == 1;
    assert!(is_given_back || Setup::of_this_run().kills().is_some());
    world.admin.delete(&path(&first)).await.expect(200);
    if is_given_back {
        assert_eq!(until_status(&world.admin, &second, "processing").await["attempts"], 1);
    }
    world.admin.delete(&path(&second)).await.expect(200);
    world.finish().await;
}

/// By a clock that is ahead by more than a lease, each claim of another process has lapsed.
#[tokio::test]
async fn a_process_whose_clock_is_ahead_leaves_claimed_jobs_alone() {
    let mut world = one_worker(&Clock::system()).await;
    let claimed = keep_busy(&world.admin).await;
    world.another_process_by(&Clock::shifted(TimeDelta::minutes(1))).await.work().await;
    // Read by the second process: the first one has one parser.
    let witness = submit(&world.admin, "a.txt", b"text").await;
    until_status(&world.admin, &witness, "completed").await;
    assert_eq!(until_status(&world.admin, &claimed, "processing").await["attempts"], 1);
    world.admin.delete(&path(&claimed)).await.expect(200);
    world.finish().await;
}

/// Claims `job` as a worker does that then crashes.
async fn begin_and_crash(world: &World, job: &str) {
    let command = ExtractionJobCommand::Begin { claim: world.clock.new_id(), at: world.clock.now() };
    let id: Uuid = job.parse().unwrap();
    world.servers.bus.send::<ExtractionJob>(id, None, &metadata(), &command).await.unwrap();
}

async fn one_worker(clock: &Clock) -> World {
    World::with_one_worker(clock.clone(), |config| config.extraction.parsers = 1).await
}

#[tokio::test]
async fn a_job_of_a_crashed_worker_is_taken_over_by_another() {
    let clock = Clock::manual(Clock::system().now());
    let world = one_worker(&clock).await;
    // The living worker has something else to do.
    let busy = keep_busy(&world.admin).await;
    let id = submit(&world.admin, "a.txt", b"text").await;
    begin_and_crash(&world, &id).await;
    world.admin.delete(&path(&busy)).await.expect(200);
    let witness = submit(&world.admin, "b.txt", b"other").await;
    until_status(&world.admin, &witness, "completed").await;
    assert_eq!(until_status(&world.admin, &id, "processing").await["attempts"], 1, "the claim is in force");
    clock.advance(TimeDelta::seconds(16));
    let job = until_status(&world.admin, &id, "completed").await;
    assert_eq!((&job["attempts"], &job["result_content"]), (&json!(2), &json!("text")));
    world.finish().await;
}

#[tokio::test]
async fn a_job_fails_after_three_crashes_of_its_workers() {
    let clock = Clock::manual(Clock::system().now());
    let world = one_worker(&clock).await;
    let busy = keep_busy(&world.admin).await;
    let id = submit(&world.admin, "a.txt", b"text").await;
    for _ in 0..3 {
        begin_and_crash(&world, &id).await;
        clock.advance(TimeDelta::seconds(16));
    }
    let job = until(&world.admin, &id, |job| job["status"] == "failed").await;
    assert_eq!((&job["attempts"], &job["error_code"]), (&json!(3), &json!("worker_lost")));
    world.admin.post(&format!("{}/retry", path(&id)), json!({})).await.error(409);
    world.admin.delete(&path(&busy)).await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn queued_jobs_outlive_a_bus_that_loses_everything() {
    let world = one_worker(&Clock::system()).await;
    let busy = keep_busy(&world.admin).await;
    let id = submit(&world.admin, "a.txt", b"text").await;
    world.servers.nats.wipe().await;
    eventually(seconds(20), async || world.admin.delete(&path(&busy)).await.status == 200).await;
    until_status(&world.admin, &id, "completed").await;
    world.finish().await;
}
