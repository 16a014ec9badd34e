use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_config::Config;

use super::{JOBS, Part, path, sample, send, send_form, submission, submit, until_status, world};
use crate::harness::{Answer, Client, World, eventually, is_once, seconds, sha256};

fn code(answer: &Answer, status: u16) -> String {
    answer.error(status);
    let body: Value = serde_json::from_slice(&answer.body).unwrap();
    body["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_job_moves_from_queued_to_completed_and_shows_its_text() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let pdf = sample("report.pdf");
    let answer = send(&client, JOBS, "../x/report.pdf", &pdf).await;
    let submitted = answer.expect(202);
    let id = submitted["job_id"].as_str().unwrap();
    assert_eq!(
        submitted,
        json!({"job_id": id, "status": "queued", "filename": "report.pdf", "message": "Job submitted successfully"})
    );
    assert_eq!(answer.header("location"), Some(path(id).as_str()));
    let job = until_status(&client, id, "completed").await;
    for (field, expected) in [
        ("id", json!(id)),
        ("filename", json!("report.pdf")),
        ("mime_type", json!("application/pdf")),
        ("size_bytes", json!(pdf.len())),
        ("sha256", json!(sha256(&pdf))),
        ("output_format", json!("markdown")),
        ("extraction_engine", json!("auto")),
        ("extractor_used", json!("pdfium")),
        ("error", Value::Null),
        ("max_attempts", json!(3)),
        ("page_count", json!(1)),
        ("pages_done", json!(1)),
        ("progress", json!(1.0)),
        ("cached", json!(false)),
    ] {
        assert_eq!(job[field], expected, "{field}");
    }
    assert!(is_once(job["attempts"].as_u64().unwrap()), "{job}");
    assert!(job["result_content"].as_str().unwrap().contains("# Prüfbericht der Weiche"));
    assert!(job["processing_time_ms"].is_u64() && job["completed_at"].is_string());
    let result = client.get(&format!("{}/result", path(id))).await;
    assert_eq!(result.header("content-type"), Some("text/markdown; charset=utf-8"));
    assert_eq!(result.text(), job["result_content"]);
    let events = world.events_of("extraction_job").await;
    assert!(!events.contains("Weiche") && !events.contains("Antrieb"), "the log holds no text: {events}");
    world.finish().await;
}

#[tokio::test]
async fn options_and_formats_are_those_of_quick_calls() {
    let world = world(|_| {}).await;
    let pdf = sample("report.pdf");
    for (format, kind) in [("plaintext", "text/plain; charset=utf-8"), ("json", "application/json")] {
        let fields: [Part<'_>; 4] = [
            ("file", Some("a.pdf"), &pdf),
            ("output_format", None, format.as_bytes()),
            ("language", None, b"en"),
            ("extraction_engine", None, b"pymupdf"),
        ];
        let submitted = send_form(&world.admin, "/api/v1/documents", &fields).await.expect(202);
        let id = submitted["job_id"].as_str().unwrap();
        let job = until_status(&world.admin, id, "completed").await;
        assert_eq!((&job["output_format"], &job["language"]), (&json!(format), &json!("eng")));
        // The requested options, beside the effective ones.
        let engines = (&job["extraction_engine"], &job["extractor_used"]);
        assert_eq!(engines, (&json!("pymupdf"), &json!("pdfium")));
        let result = world.admin.get(&format!("{}/result", path(id))).await;
        assert_eq!(result.header("content-type"), Some(kind));
        let quick = format!("/api/v1/extract/raw?output_format={format}&language=eng");
        assert_eq!(result.body, send(&world.admin, &quick, "a.pdf", &pdf).await.body);
    }
    world.finish().await;
}

#[tokio::test]
async fn a_blank_document_completes() {
    let world = world(|_| {}).await;
    let id = submit(&world.admin, "blank.txt", b" \n").await;
    let job = until_status(&world.admin, &id, "completed").await;
    assert_eq!((&job["result_content"], &job["error"]), (&json!(""), &Value::Null));
    world.admin.get(&format!("{}/result", path(&id))).await.expect_bytes(b"");
    world.finish().await;
}

#[tokio::test]
async fn a_batch_is_taken_in_whole_or_not_at_all() {
    let world = world(|config| config.extraction.max_file_bytes = 1 << 20).await;
    let client = &world.at_one_gateway();
    let batch = format!("{JOBS}/batch?output_format=plaintext");
    let files: Vec<(String, String)> =
        (0..100).map(|number| (format!("{number}.txt"), format!("Text {number}"))).collect();
    let parts: Vec<Part<'_>> =
        files.iter().map(|(name, text)| ("files", Some(name.as_str()), text.as_bytes())).collect();
    let answer = send_form(client, &batch, &parts).await.expect(202);
    assert_eq!((&answer["total"], &answer["message"]), (&json!(100), &json!("Batch submitted successfully")));
    for (number, submitted) in answer["jobs"].as_array().unwrap().iter().enumerate() {
        let job = until_status(client, submitted["job_id"].as_str().unwrap(), "completed").await;
        assert_eq!(job["result_content"], format!("Text {number}"));
        assert_eq!(job["filename"], format!("{number}.txt"));
    }
    let before = world.count_events("extraction_submitted").await;
    let large = vec![b'a'; (1 << 20) + 1];
    let good: Part<'_> = ("files", Some("a.txt"), b"a");
    let wrong: [(&[Part<'_>], u16, &str); 5] = [
        (&[], 422, "files"),
        (&[good, ("files", Some("b.txt"), b"")], 400, "b.txt: Empty file"),
        (&[good, ("files", Some(""), b"b")], 400, "Filename"),
        (&[good, ("files", Some("b.txt"), &large)], 413, "b.txt: File exceeds"),
        (&[good; 101], 422, "at most 100"),
    ];
    for (parts, status, why) in wrong {
        let refused = send_form(client, &batch, parts).await;
        assert!(refused.error(status).contains(why), "{}", refused.text());
    }
    assert_eq!(world.count_events("extraction_submitted").await, before);
    eventually(seconds(30), async || !world.staged_files().await.contains(&sha256(b"input"))).await;
    world.finish().await;
}

#[tokio::test]
async fn what_no_job_can_be_made_of_is_refused_at_once() {
    let world = world(|config| config.extraction.max_file_bytes = 1 << 20).await;
    let client = &world.admin;
    let pdf = sample("report.pdf");
    let sent = async |query: &str, name: &str, bytes: &[u8]| {
        send(client, &format!("{JOBS}?{query}"), name, bytes).await
    };
    assert_eq!(code(&sent("", "a.pdf", b"").await, 400), "empty_file");
    assert_eq!(code(&sent("", "", &pdf).await, 400), "malformed");
    assert_eq!(code(&sent("output_format=html", "a.pdf", &pdf).await, 422), "invalid_field");
    assert_eq!(code(&sent("language=xyz", "a.pdf", &pdf).await, 422), "unsupported_language");
    assert_eq!(code(&sent("extraction_engine=tika", "a.pdf", &pdf).await, 503), "unavailable");
    assert_eq!(code(&sent("processors=llm", "a.pdf", &pdf).await, 503), "unavailable");
    for url in
        ["ftp://example.org", "http://10.0.0.1/", "http://169.254.169.254/", "http://[::1]/", "nowhere"]
    {
        assert_eq!(code(&sent(&format!("callback_url={url}"), "a.pdf", &pdf).await, 422), "invalid_field");
    }
    let large = vec![b'a'; (1 << 20) + 1];
    assert_eq!(code(&sent("", "a.txt", &large).await, 413), "too_large");
    let program = b"\x7fELF\x02\x01\x01\0\0\0";
    assert_eq!(code(&sent("", "a.pdf", program).await, 415), "unsupported_type");
    assert_eq!(code(&sent("", "a.docx", b"PK\x03\x04\x14\0\0\0song.mp3").await, 415), "unsupported_type");
    assert_eq!(code(&sent("extraction_engine=native", "a.bin", program).await, 422), "wrong_engine");
    let batch: [Part<'_>; 2] = [("files", Some("a.txt"), b"a"), ("files", Some("b.exe"), program)];
    let refused = send_form(client, &format!("{JOBS}/batch"), &batch).await;
    assert_eq!(code(&refused, 415), "unsupported_type");
    assert!(refused.text().contains("b.exe"), "{}", refused.text());
    let two: [Part<'_>; 2] = [("file", Some("a"), b"a"), ("file", Some("b"), b"b")];
    assert_eq!(code(&send_form(client, JOBS, &two).await, 422), "invalid_field");
    let no_form = client.request(Method::POST, JOBS).header("content-type", "text/plain").body("x");
    assert_eq!(code(&client.send(no_form).await, 422), "invalid_field");
    assert_eq!(world.count_events("extraction_submitted").await, 0);
    world.finish().await;
}

/// One parser, and room for `jobs` in the queue.
fn room_for(jobs: u32) -> impl FnOnce(&mut Config) {
    move |config| (config.extraction.max_open_jobs, config.extraction.parsers) = (jobs, 1)
}

#[tokio::test]
async fn the_queue_is_bounded() {
    let world = World::with_one_worker(Clock::system(), room_for(2)).await;
    let busy = super::keep_busy(&world.admin).await;
    let waiting = submit(&world.admin, "a.txt", b"a").await;
    let full = send(&world.admin, JOBS, "a.txt", b"a").await;
    assert_eq!(code(&full, 503), "unavailable");
    assert!(full.header("retry-after").is_some());
    world.admin.delete(&path(&busy)).await.expect(200);
    until_status(&world.admin, &waiting, "completed").await;
    submit(&world.admin, "a.txt", b"a").await;
    world.finish().await;
}

#[tokio::test]
async fn a_repetition_finds_room_in_a_queue_that_is_full_of_what_it_had_brought() {
    let world = World::without_workers(Clock::system(), room_for(1)).await;
    let first = with_key(&world.admin, "k-1", b"a").await.expect(202);
    world.lose_kept_answers().await;
    assert_eq!(code(&send(&world.admin, JOBS, "a.txt", b"a").await, 503), "unavailable");
    assert_eq!(with_key(&world.admin, "k-1", b"a").await.expect(202), first);
    world.admin.delete(&path(first["job_id"].as_str().unwrap())).await.expect(200);
    world.finish().await;
}

async fn with_key(client: &Client, key: &str, bytes: &[u8]) -> Answer {
    client.send(submission(client, key, bytes)).await
}

#[tokio::test]
async fn the_same_key_is_the_same_job() {
    let world = world(|_| {}).await;
    let large = vec![b'a'; 3 << 20];
    let first = with_key(&world.admin, "k-1", &large).await;
    let again = with_key(&world.admin, "k-1", &large).await;
    assert_eq!(first.expect(202), again.expect(202));
    assert_eq!(code(&with_key(&world.admin, "k-1", b"other").await, 422), "idempotency_key_reused");
    assert_eq!(code(&with_key(&world.admin, "", b"other").await, 400), "malformed");
    assert_eq!(world.count_events("extraction_submitted").await, 1);
    let other = world.user("other", "operator").await;
    assert_ne!(with_key(&other, "k-1", &large).await.expect(202), first.expect(202));
    world.finish().await;
}

/// By the time of a gateway that is a day behind, the sweep would give the file up while its command is in progress.
#[tokio::test]
async fn a_file_is_noted_by_the_time_that_the_sweep_uses() {
    let mut world = world(|_| {}).await;
    let behind = world.another_gateway_by(&Clock::shifted(TimeDelta::hours(-20))).await;
    let id = submit(&world.admin.at(&behind), "a.txt", b"text").await;
    let oldest =
        sqlx::query_scalar("SELECT max(clock_timestamp() - noted_at) < '1 hour' FROM ops.staged_files");
    assert_eq!(oldest.fetch_one(&world.servers.pool).await.ok(), Some(true));
    until_status(&world.admin, &id, "completed").await;
    world.finish().await;
}
