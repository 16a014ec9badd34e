use chrono::TimeDelta;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_workers::{Parts, TextSweep, Worker};
use sqlx::Executor;

use super::{super::world_for_weeks, path, sample, send, submit, until_status, world};
use crate::harness::{World, eventually, eventually_some, seconds, sha256};

#[tokio::test]
async fn the_same_document_with_the_same_options_is_read_once() {
    let world = world(|_| {}).await;
    let (client, pdf) = (&world.admin, sample("report.pdf"));
    let first = submit(client, "report.pdf", &pdf).await;
    let first = until_status(client, &first, "completed").await;
    let quick = send(client, super::super::EXTRACT, "report.pdf", &pdf).await.expect(200);
    assert_eq!(quick["cached"], true);
    assert_eq!(quick["content"], first["result_content"]);
    let second = submit(client, "renamed.pdf", &pdf).await;
    let second = until_status(client, &second, "completed").await;
    assert_eq!((&first["cached"], &second["cached"]), (&json!(false), &json!(true)));
    assert_eq!(second["result_content"], first["result_content"]);
    assert_eq!((&second["filename"], &second["page_count"]), (&json!("renamed.pdf"), &json!(1)));
    let other_options = send(client, "/api/v1/jobs?output_format=json", "report.pdf", &pdf).await.expect(202);
    let id = other_options["job_id"].as_str().unwrap();
    assert_eq!(until_status(client, id, "completed").await["cached"], false);
    let stranger = world.anonymous();
    let id = submit(&stranger, "report.pdf", &pdf).await;
    assert_eq!(
        until_status(&stranger, &id, "completed").await["cached"],
        false,
        "a user learns nothing about documents of others"
    );
    world.finish().await;
}

#[tokio::test]
async fn answered_text_is_remembered() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |config| {
        config.extraction.parsers = 2;
        config.limits.anonymous_extractions_per_minute = 1000;
        config.identity.token_hours = 1000;
    })
    .await;
    let clients = [world.anonymous(), world.admin.clone()];
    for round in 0..2 {
        for client in &clients {
            for number in 0..10 {
                let text = format!("Text {number}");
                let send = async || send(client, super::super::EXTRACT, "a.txt", text.as_bytes()).await;
                let cached = [send().await.expect(200), send().await.expect(200)];
                assert_eq!(
                    cached.map(|answer| answer["cached"].clone()),
                    [json!(false), json!(true)],
                    "{round} {number}"
                );
            }
        }
        // Expired texts are remembered again before they are swept.
        clock.advance(TimeDelta::hours(25));
    }
    world.finish().await;
}

#[tokio::test]
async fn texts_and_documents_are_kept_as_long_as_is_said() {
    let (world, clock) = world_for_weeks().await;
    let client = &world.admin;
    let id = submit(client, "a.txt", b"text").await;
    until_status(client, &id, "completed").await;
    let failed = submit(client, "a.pdf", &sample("truncated.pdf")).await;
    until_status(client, &failed, "failed").await;
    let count = async |name: &[u8]| {
        let name = sha256(name);
        world.staged_files().await.iter().filter(|file| **file == name).count()
    };
    // That of the failed job may be read again.
    eventually(seconds(10), async || count(b"input").await == 1).await;
    clock.advance(TimeDelta::hours(25));
    let again = submit(client, "a.txt", b"text").await;
    assert_eq!(until_status(client, &again, "completed").await["cached"], false, "a day has passed");
    clock.advance(TimeDelta::hours(46));
    assert_eq!(client.get(&path(&id)).await.expect(200)["result_content"], "text");
    clock.advance(TimeDelta::hours(2));
    let job = eventually_some(seconds(10), async || {
        let job = client.get(&path(&id)).await.expect(200);
        job["result_expires_at"].is_null().then_some(job)
    })
    .await;
    assert_eq!((&job["status"], &job["result_content"]), (&json!("completed"), &json!(null)));
    let gone = client.get(&format!("{}/result", path(&id))).await.expect(404);
    assert_eq!(gone["status"], "not_found");
    eventually(seconds(10), async || count(b"input").await == 0).await;
    // The file is deleted first, and the event follows.
    eventually(seconds(10), async || world.count_events("extraction_input_removed").await == 3).await;
    client.post(&format!("{}/retry", path(&failed)), json!({})).await.error(409);
    clock.advance(TimeDelta::hours(72));
    world.worker_parts().await.texts.forget().await.unwrap();
    eventually(seconds(10), async || count(b"text").await == 0).await;
    world.finish().await;
}

#[tokio::test]
async fn what_is_remembered_is_bounded() {
    let world = world(|config| config.extraction.cache_mb = 1).await;
    let client = &world.admin;
    // A text that takes more than a part of all room is not remembered.
    let large = vec![b'a'; 100_000];
    for _ in 0..2 {
        let id = submit(client, "a.txt", &large).await;
        assert_eq!(until_status(client, &id, "completed").await["cached"], false);
    }
    let count = async || -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM ops.extraction_cache");
        count.fetch_one(&world.servers.pool).await.unwrap()
    };
    assert_eq!(count().await, 0);
    for number in 0..40 {
        let text = format!("{number} {}", "word ".repeat(11_000));
        send(client, super::super::EXTRACT, "a.txt", text.as_bytes()).await.expect(200);
    }
    eventually(seconds(10), async || count().await > 20).await;
    let texts = world.worker_parts().await.texts;
    texts.forget().await.unwrap();
    assert!(count().await < 20, "{} texts of 55 kB are remembered in 1 MiB", count().await);
    world.finish().await;
}

#[tokio::test]
async fn failed_sweep_of_a_text_still_removes_charges_of_strangers() {
    let world = world(|_| {}).await;
    let pool = &world.servers.pool;
    // A text that is too old and stays, and a document that never became a job.
    let statements = [
        "INSERT INTO ops.extraction_cache (key, blob_id, size, created_at)
         VALUES ('old', gen_random_uuid(), 1, clock_timestamp() - interval '1000 hours')",
        "CREATE FUNCTION ops.stay() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'it stays'; END$$",
        "CREATE TRIGGER stay BEFORE DELETE ON ops.extraction_cache FOR EACH ROW EXECUTE FUNCTION ops.stay()",
        "INSERT INTO ops.anonymous_jobs (job_id, network, size, noted_at)
         VALUES (gen_random_uuid(), '192.0.2.1', 1, clock_timestamp() - interval '2 hours')",
    ];
    for statement in statements {
        pool.execute(statement).await.unwrap();
    }
    let Parts { context, texts, .. } = world.worker_parts().await;
    TextSweep::new(texts).step(&context).await.unwrap_err();
    let noted: i64 =
        sqlx::query_scalar("SELECT count(*) FROM ops.anonymous_jobs").fetch_one(pool).await.unwrap();
    assert_eq!(noted, 0);
    pool.execute("DROP TRIGGER stay ON ops.extraction_cache").await.unwrap();
    world.finish().await;
}
