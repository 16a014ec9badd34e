//! Callers who take all they can get delay themselves, not the others.

use reqwest::Method;
use serde_json::json;
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{EXTRACT, Part, form, jobs::until_status, sample, send, send_form, world, world_with_timeout};
use crate::harness::{Answer, Client, World, eventually, seconds};

const JOBS: &str = "/api/v1/jobs";

/// A picture in which recognition finds something everywhere, for minutes: 8 bits a pixel, without compression.
fn noise(side: u32) -> Vec<u8> {
    let (colours, count) = (256 * 4, side * side);
    let start = 14 + 40 + colours;
    let mut bytes = b"BM".to_vec();
    for value in [start + count, 0, start, 40, side, side, 1 | 8 << 16, 0, count, 0, 0, 0, 0] {
        bytes.extend(value.to_le_bytes());
    }
    (0..=255_u8).for_each(|gray| bytes.extend([gray, gray, gray, 0]));
    let mut state = 1_u32;
    bytes.extend((0..count).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 0 } else { 255 }
    }));
    bytes
}

/// A request whose body stops after its beginning.
async fn half_a_document(world: &World, path: &str, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(world.address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n\
         --b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nsome words"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn a_text_does_not_wait_for_pictures_that_are_being_recognised() {
    let world = world_with_timeout(90, |config| config.extraction.parsers = 1).await;
    let reader = world.user("reader", "operator").await;
    let picture = noise(2500);
    let slow: Vec<_> = (0..3)
        .map(|_| {
            let client = world.anonymous();
            let body = form(&[("file", Some("noise.bmp"), picture.as_slice())]);
            let request = client
                .request(Method::POST, EXTRACT)
                .header("content-type", "multipart/form-data; boundary=b");
            tokio::spawn(request.body(body).send())
        })
        .collect();
    // A picture of a user is recognised although strangers hold the only place.
    let letter = sample("scan.png");
    let (texts, read) = tokio::join!(
        async {
            for _ in 0..10 {
                let answer = send(&reader, EXTRACT, "a.txt", b"plain words").await.expect(200);
                assert!(answer["content"].as_str().unwrap().contains("plain words"));
            }
        },
        send(&world.admin, EXTRACT, "scan.png", &letter),
    );
    let () = texts;
    read.expect(200);
    assert!(
        slow.iter().any(|request| !request.is_finished()),
        "the pictures were no work: the test shows nothing"
    );
    slow.iter().for_each(|request| request.abort());
    world.finish().await;
}

#[tokio::test]
async fn slow_uploads_of_strangers_leave_room_for_users() {
    let world = world_with_timeout(1, |_| {}).await;
    let mut held = Vec::new();
    for _ in 0..80 {
        held.push(half_a_document(&world, EXTRACT, 100_000).await);
    }
    let stranger = world.anonymous();
    eventually(seconds(20), async || send(&stranger, EXTRACT, "a.txt", b"words").await.status == 503).await;
    for _ in 0..10 {
        send(&world.admin, EXTRACT, "a.txt", b"words").await.expect(200);
    }
    drop(held);
    eventually(seconds(20), async || send(&stranger, EXTRACT, "a.txt", b"words").await.status == 200).await;
    world.finish().await;
}

#[tokio::test]
async fn what_is_kept_for_strangers_is_bounded() {
    let world = world(|config| {
        config.extraction.anonymous_mb_each = 1;
        config.extraction.cache_hours = 0;
        config.extraction.input_hours = 72;
    })
    .await;
    let stranger = world.at_one_gateway().anonymous();
    let text = |letter: &str| letter.repeat(700_000).into_bytes();
    send(&stranger, JOBS, "a.txt", &text("a ")).await.error(429);
    send(&stranger, JOBS, "a.txt", &text("a")).await.expect(202);
    let refused = send(&stranger, JOBS, "b.txt", &text("b")).await;
    assert!(refused.header("retry-after").is_some());
    assert_eq!(refused.expect(429)["code"], "anonymous_storage_full");
    send(&world.admin, JOBS, "b.txt", &text("b")).await.expect(202);
    world.finish().await;
}

#[tokio::test]
async fn uploads_of_strangers_count_before_they_are_complete() {
    let world = world(|config| config.extraction.anonymous_mb_each = 1).await;
    let stranger = world.at_one_gateway().anonymous();
    let document = "a".repeat(500_000).into_bytes();
    let coming = half_a_document(&world, JOBS, 700_000).await;
    let noted = async || -> i64 {
        let noted = sqlx::query_scalar("SELECT count(*) FROM ops.anonymous_jobs");
        noted.fetch_one(&world.servers.pool).await.unwrap()
    };
    eventually(seconds(20), async || noted().await == 1).await;
    let refused = send(&stranger, JOBS, "a.txt", &document).await;
    assert_eq!(refused.expect(429)["code"], "anonymous_storage_full");
    drop(coming);
    eventually(seconds(20), async || noted().await == 0).await;
    send(&stranger, JOBS, "a.txt", &document).await.expect(202);
    assert_eq!(noted().await, 1, "the job alone counts");
    world.finish().await;
}

#[tokio::test]
async fn text_beyond_a_strangers_quota_is_not_kept() {
    let world = world(|config| config.extraction.anonymous_mb_each = 1).await;
    let stranger = world.at_one_gateway().anonymous();
    // Its description in JSON is several times as long.
    let document = "a\n\n".repeat(40_000).into_bytes();
    let path = format!("{JOBS}?output_format=json");
    for (client, status) in [(&stranger, "failed"), (&world.admin, "completed")] {
        let job = send(client, &path, "a.txt", &document).await.expect(202);
        let id = job["job_id"].as_str().unwrap();
        let job = until_status(client, id, status).await;
        let is_kept: bool =
            sqlx::query_scalar("SELECT result_kept FROM read.extraction_jobs WHERE id = $1::uuid")
                .bind(id)
                .fetch_one(&world.servers.pool)
                .await
                .unwrap();
        assert_eq!(is_kept, status == "completed");
        assert_eq!(job["error_code"] == "limit_exceeded", status == "failed", "{}", job["error_code"]);
    }
    world.finish().await;
}

/// Submits a document whose callback is on this machine.
async fn submit_with_callback(client: &Client, headers: &[(&str, &str)]) -> Answer {
    let parts: [Part<'_>; 2] =
        [("file", Some("a.txt"), b"words"), ("callback_url", None, b"http://127.0.0.1:9/hook")];
    let request =
        client.request(Method::POST, JOBS).header("content-type", "multipart/form-data; boundary=b");
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    client.send(request.body(form(&parts))).await
}

#[tokio::test]
async fn a_page_in_a_browser_cannot_have_this_machine_called() {
    let world = world(|_| {}).await;
    let stranger = world.anonymous();
    let refused = submit_with_callback(&stranger, &[("origin", "https://evil.example")]).await.error(422);
    assert!(refused.starts_with("callback_url"), "{refused}");
    submit_with_callback(&stranger, &[]).await.expect(202);
    submit_with_callback(&world.admin, &[("origin", "https://console.example")]).await.expect(202);
    world.finish().await;
}

#[tokio::test]
async fn local_callback_of_a_proxied_stranger_is_refused() {
    let world = world(|_| {}).await;
    let stranger = world.anonymous();
    for header in [
        ("forwarded", "for=192.0.2.1"),
        ("via", "1.1 proxy"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-real-ip", "192.0.2.1"),
    ] {
        let refused = submit_with_callback(&stranger, &[header]).await.error(422);
        assert!(refused.starts_with("callback_url"), "{header:?}: {refused}");
        submit_with_callback(&world.admin, &[header]).await.expect(202);
    }
    world.finish().await;
}

#[tokio::test]
async fn local_callback_from_a_trusted_proxy_is_refused() {
    let world = world(|config| config.server.trusted_proxies = vec!["127.0.0.1".parse().unwrap()]).await;
    submit_with_callback(&world.anonymous(), &[]).await.error(422);
    world.finish().await;
}

#[tokio::test]
async fn local_callback_is_refused_if_metrics_are_public() {
    let world = world(|config| config.server.metrics_address = Some("0.0.0.0:0".parse().unwrap())).await;
    submit_with_callback(&world.anonymous(), &[]).await.error(422);
    submit_with_callback(&world.admin, &[]).await.expect(202);
    world.finish().await;
}

#[tokio::test]
async fn a_name_that_resolves_to_this_machine_is_refused_when_it_is_called() {
    let world = world(|_| {}).await;
    let stranger = world.anonymous();
    let parts: [Part<'_>; 2] =
        [("file", Some("a.txt"), b"words"), ("callback_url", None, b"http://localhost:9/hook")];
    let request = stranger
        .request(Method::POST, JOBS)
        .header("content-type", "multipart/form-data; boundary=b")
        .header("origin", "https://evil.example");
    stranger.send(request.body(form(&parts))).await.expect(202);
    let error = "SELECT last_error FROM read.deliveries WHERE is_callback AND last_error IS NOT NULL LIMIT 1";
    eventually(seconds(20), async || {
        let error: Option<String> =
            sqlx::query_scalar(error).fetch_optional(&world.servers.pool).await.unwrap();
        error.is_some_and(|error| error.contains("may not be reached"))
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn list_and_counts_of_jobs_agree_for_strangers() {
    let world = world(|_| {}).await;
    let stranger = world.anonymous();
    send_form(&stranger, JOBS, &[("file", Some("a.txt"), b"words")]).await.expect(202);
    let list = stranger.get(JOBS).await.expect(200);
    let counts = stranger.get("/api/v1/jobs/stats/overview").await.expect(200);
    assert_eq!((&list["total"], &counts["total_jobs"]), (&json!(0), &json!(0)));
    world.finish().await;
}
