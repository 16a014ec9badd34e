//! Documents on their way from a request into the log.

use std::io;

use chrono::TimeDelta;
use futures::stream;
use signalbox_blob_store::{BlobKey, BlobStore, Progress, Receive, Start};
use signalbox_clock::Clock;
use signalbox_domain::{extraction::ExtractionJob, kernel::Decider};
use signalbox_workers::{Parts, StagedSweep, Worker};
use uuid::Uuid;

use super::{submission, submit, until_status};
use crate::harness::{LostAnswers, World, eventually, seconds};

async fn without_workers(clock: Clock) -> World {
    World::without_workers(clock, |config| config.extraction.parsers = 1).await
}

#[tokio::test]
async fn a_document_stays_when_the_answer_to_its_command_is_lost() {
    let mut world = without_workers(Clock::system()).await;
    let lost = LostAnswers::first(&world, "extraction").await;
    let mut jobs = Vec::new();
    eventually(seconds(20), async || {
        let text = format!("document {}", jobs.len());
        jobs.push(submit(&world.admin, "a.txt", text.as_bytes()).await);
        lost.count() > 0
    })
    .await;
    drop(lost);
    world.another_process().await.work().await;
    for job in jobs {
        until_status(&world.admin, &job, "completed").await;
    }
    world.finish().await;
}

#[tokio::test]
async fn a_document_stays_when_its_client_leaves_before_the_answer() {
    let mut world = without_workers(Clock::system()).await;
    let admin = world.at_one_gateway();
    let lost = LostAnswers::all(&world, "extraction").await;
    let sent = tokio::spawn(submission(&admin, "once", b"a").send());
    eventually(seconds(20), async || world.count_events("extraction_submitted").await == 1).await;
    sent.abort();
    assert!(lost.count() > 0);
    drop(lost);
    let again = admin.send(submission(&admin, "once", b"a")).await.expect(202);
    world.another_process().await.work().await;
    until_status(&world.admin, again["job_id"].as_str().unwrap(), "completed").await;
    assert_eq!(world.count_events("extraction_submitted").await, 1);
    world.finish().await;
}

/// Puts a file into `blobs` as a gateway does that crashes before its command, or before the answer to it.
async fn leave_behind(world: &World, blobs: &BlobStore, job: Option<Uuid>) -> Uuid {
    let id = world.clock.new_id();
    let request = Receive { start: Start::Anew, limit: 1, expected_sha256: None, total: None };
    let bytes = stream::iter([Ok::<_, io::Error>(bytes::Bytes::from_static(b"a"))]);
    blobs.receive(&BlobKey::new(id, "input"), request, bytes, |_| {}).await.unwrap();
    sqlx::query(
        "INSERT INTO ops.staged_files (id, aggregate_type, aggregate_id, noted_at) VALUES ($1, $2, $3, $4)",
    )
    .bind(id)
    .bind(job.map(|_| ExtractionJob::TYPE))
    .bind(job)
    .bind(world.clock.now())
    .execute(&world.servers.pool)
    .await
    .unwrap();
    id
}

async fn is_there(blobs: &BlobStore, input: Uuid) -> bool {
    blobs.received(&BlobKey::new(input, "input")).await.unwrap() != Progress::Nothing
}

#[tokio::test]
async fn files_without_a_job_are_deleted() {
    let clock = Clock::manual(Clock::system().now());
    let world = without_workers(clock.clone()).await;
    let Parts { context, blobs, .. } = world.worker_parts().await;
    let (blobs, sweep) = (&blobs, StagedSweep::new(blobs.clone()));
    let job: Uuid = submit(&world.admin, "a.txt", b"a").await.parse().unwrap();
    let input = sqlx::query_scalar("SELECT input_id FROM read.extraction_jobs");
    let input: Uuid = input.fetch_one(&world.servers.pool).await.unwrap();
    let received = leave_behind(&world, blobs, None).await;
    let offered = [
        leave_behind(&world, blobs, Some(job)).await,
        leave_behind(&world, blobs, Some(world.clock.new_id())).await,
    ];
    for (hours, is_offered_there, is_received_there) in
        [(0, true, true), (2, false, true), (21, false, true), (2, false, false)]
    {
        clock.advance(TimeDelta::hours(hours));
        assert!(!sweep.step(&context).await.unwrap());
        for id in offered {
            assert_eq!(is_there(blobs, id).await, is_offered_there);
        }
        assert_eq!(is_there(blobs, received).await, is_received_there);
        assert!(is_there(blobs, input).await);
    }
    let noted = sqlx::query_scalar("SELECT count(*) FROM ops.staged_files");
    let noted: i64 = noted.fetch_one(&world.servers.pool).await.unwrap();
    assert_eq!(noted, 0);
    world.finish().await;
}
