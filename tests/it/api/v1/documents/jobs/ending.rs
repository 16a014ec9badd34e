use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{PAGES, keep_busy, path, sample, submit, until, until_status, world};
use crate::harness::{World, eventually, seconds, sha256};

#[tokio::test]
async fn progress_shows_while_a_document_is_read() {
    let world = world(|_| {}).await;
    let id = keep_busy(&world.admin).await;
    let job = until(&world.admin, &id, |job| job["pages_done"].as_i64() > Some(0)).await;
    assert_eq!((&job["status"], &job["page_count"]), (&json!("processing"), &json!(PAGES)));
    let progress = job["progress"].as_f64().unwrap();
    assert!(progress > 0.0 && progress < 1.0, "{job}");
    world.admin.get(&format!("{}/result", path(&id))).await.error(409);
    world.admin.delete(&path(&id)).await.expect(200);
    let advances = world.count_events("extraction_advanced").await;
    assert!(advances < 50, "{advances} events for one document");
    world.finish().await;
}

/// The only parser is free again at once, although the job was cancelled at another gateway.
#[tokio::test]
async fn a_cancelled_job_stops_what_reads_it() {
    let mut world = World::with_one_worker(Clock::system(), |config| config.extraction.parsers = 1).await;
    let other = world.another_gateway().await;
    let other = world.admin.at(&other);
    let id = keep_busy(&world.admin).await;
    let waiting = submit(&world.admin, "a.txt", b"next").await;
    let queued = submit(&world.admin, "b.txt", b"never").await;
    assert_eq!(other.delete(&path(&queued)).await.expect(200)["status"], "cancelled");
    let begun = tokio::time::Instant::now();
    let cancelled = other.delete(&path(&id)).await.expect(200);
    assert_eq!((&cancelled["status"], &cancelled["completed_at"]), (&json!("cancelled"), &Value::Null));
    until_status(&world.admin, &waiting, "completed").await;
    assert!(begun.elapsed() < seconds(30), "{:?}", begun.elapsed());
    for id in [&id, &queued] {
        assert_eq!(world.admin.delete(&path(id)).await.expect(200)["status"], "cancelled");
        let retried = world.admin.post(&format!("{}/retry", path(id)), json!({})).await.expect(200);
        assert_eq!(retried["status"], "cancelled");
    }
    let completed = world.admin.delete(&path(&waiting)).await.expect(200);
    assert_eq!(completed["status"], "completed", "what has ended stays");
    // Neither documents nor texts of cancelled jobs stay.
    eventually(seconds(10), async || !world.staged_files().await.contains(&sha256(b"input"))).await;
    world.finish().await;
}

#[tokio::test]
async fn a_failed_job_says_why_and_is_retried_twice() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let id = submit(&client, "a.pdf", &sample("truncated.pdf")).await;
    let retry = format!("{}/retry", path(&id));
    for attempt in 1..=3 {
        let job = until(&client, &id, |job| job["status"] == "failed" && job["attempts"] == attempt).await;
        assert_eq!(job["error_code"], "corrupt_file");
        assert!(job["error"].is_string() && job["completed_at"].is_null(), "{job}");
        client.get(&format!("{}/result", path(&id))).await.error(409);
        if attempt < 3 {
            let job = client.post(&retry, json!({})).await.expect(200);
            assert!(job["error"].is_null() || job["status"] != "queued", "{job}");
        }
    }
    let exhausted = client.post(&retry, json!({})).await;
    assert_eq!(exhausted.error(409), "Job has exceeded maximum retry attempts");
    eventually(seconds(10), async || !world.staged_files().await.contains(&sha256(b"input"))).await;
    let id = submit(&client, "a.pdf", &sample("encrypted.pdf")).await;
    assert_eq!(until_status(&client, &id, "failed").await["error_code"], "encrypted_file");
    world.finish().await;
}

#[tokio::test]
async fn a_job_has_a_version() {
    let world = world(|_| {}).await;
    let id = submit(&world.admin, "a.txt", b"text").await;
    until_status(&world.admin, &id, "completed").await;
    let delete = async |tag: &str| {
        let request = world.admin.request(Method::DELETE, &path(&id)).header("if-match", tag.to_owned());
        world.admin.send(request).await
    };
    delete("\"1\"").await.error(412);
    // Until the removal of its document has been recorded, the version changes.
    eventually(seconds(10), async || {
        let etag = world.admin.get(&path(&id)).await.header("etag").unwrap().to_owned();
        delete(&etag).await.status == 200
    })
    .await;
    world.finish().await;
}
