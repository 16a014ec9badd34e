use reqwest::Method;
use serde_json::json;

use super::{EXTRACT, form, sample, send, send_form, world};
use crate::harness::Answer;

/// The stable word for what went wrong.
fn code(answer: &Answer, status: u16) -> String {
    answer.error(status);
    let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    body["code"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_refusal_says_why() {
    let world = world(|config| config.extraction.max_file_bytes = 1 << 20).await;
    let client = world.anonymous();
    let pdf = sample("report.pdf");
    let sent = async |query: &str, name: &str, bytes: &[u8]| {
        send(&client, &format!("{EXTRACT}?{query}"), name, bytes).await
    };
    assert_eq!(code(&sent("", "a.pdf", b"").await, 400), "empty_file");
    assert_eq!(code(&sent("", "", &pdf).await, 400), "malformed");
    assert_eq!(code(&sent("", "a.pdf", b"\x7fELF\x02\x01\x01\0\0\0").await, 415), "unsupported_type");
    assert_eq!(code(&sent("extraction_engine=pdfium", "a.pdf", b"no pdf").await, 422), "wrong_engine");
    assert_eq!(code(&sent("extraction_engine=native", "a.txt", &pdf).await, 422), "wrong_engine");
    assert_eq!(code(&sent("extraction_engine=tika", "a.pdf", &pdf).await, 503), "unavailable");
    assert_eq!(code(&sent("ocr_engine=google_vision", "a.pdf", &pdf).await, 503), "unavailable");
    assert_eq!(code(&sent("", "a.pdf", &sample("encrypted.pdf")).await, 422), "encrypted_file");
    assert_eq!(code(&sent("", "a.pdf", &sample("truncated.pdf")).await, 422), "corrupt_file");
    assert_eq!(code(&sent("", "a.docx", &sample("letter.docx")[..2000]).await, 422), "corrupt_file");
    assert_eq!(code(&sent("processors=llm", "a.pdf", &pdf).await, 422), "invalid_field");
    assert_eq!(code(&sent("output_format=html", "a.pdf", &pdf).await, 422), "invalid_field");
    let unknown = sent("language=xyz", "a.pdf", &pdf).await;
    assert_eq!(code(&unknown, 422), "unsupported_language");
    assert!(unknown.text().contains("deu, eng"), "{}", unknown.text());
    let without = send_form(&client, EXTRACT, &[("language", None, b"deu")]).await;
    assert_eq!(code(&without, 422), "invalid_field");
    assert_eq!(code(&send_form(&client, EXTRACT, &[("file", None, &pdf)]).await, 422), "invalid_field");
    let no_form = client.request(Method::POST, EXTRACT).header("content-type", "text/plain").body("x");
    assert_eq!(code(&client.send(no_form).await, 422), "invalid_field");
    for path in [EXTRACT, "/api/v1/jobs", "/api/v1/jobs/batch"] {
        let body = form(&[("file", Some("a.pdf"), &pdf)]);
        let no_boundary = client.request(Method::POST, path).header("content-type", "multipart/form-data");
        let refused = client.send(no_boundary.body(body)).await;
        assert_eq!(code(&refused, 400), "malformed", "{path}");
        assert!(refused.text().contains("boundary"), "{}", refused.text());
    }
    let mut cut = form(&[("file", Some("a.pdf"), &pdf)]);
    cut.truncate(cut.len() / 2);
    let cut = client
        .request(Method::POST, EXTRACT)
        .header("content-type", "multipart/form-data; boundary=b")
        .body(cut);
    assert_eq!(code(&client.send(cut).await, 400), "malformed");
    world.finish().await;
}

#[tokio::test]
async fn a_document_that_is_too_large_is_refused_as_soon_as_that_is_known() {
    let world = world(|config| config.extraction.max_file_bytes = 1 << 20).await;
    let client = world.anonymous();
    let most = vec![b'a'; 1 << 20];
    send(&client, EXTRACT, "a.txt", &most).await.expect(200);
    let larger = vec![b'a'; (1 << 20) + 1];
    assert_eq!(code(&send(&client, EXTRACT, "a.txt", &larger).await, 413), "too_large");
    let body = form(&[("file", Some("a.txt"), &vec![b'a'; 3 << 20])]);
    let unannounced = futures::stream::iter([Ok::<_, std::io::Error>(body)]);
    let request =
        client.request(Method::POST, EXTRACT).header("content-type", "multipart/form-data; boundary=b");
    let answer = client.send(request.body(reqwest::Body::wrap_stream(unannounced))).await;
    assert_eq!(code(&answer, 413), "too_large");
    world.finish().await;
}

#[tokio::test]
async fn a_hundred_megabytes_are_read_and_one_byte_more_is_refused() {
    let world = world(|_| {}).await;
    let mut bytes = vec![b'a'; (100 << 20) + 1];
    assert_eq!(code(&send(&world.admin, EXTRACT, "a.txt", &bytes).await, 413), "too_large");
    bytes.pop();
    // Nothing that anybody reads.
    bytes.fill(0);
    assert_eq!(code(&send(&world.admin, EXTRACT, "a.txt", &bytes).await, 415), "unsupported_type");
    world.finish().await;
}

#[tokio::test]
async fn strangers_are_limited_and_credentials_are_checked() {
    let world = world(|config| config.limits.anonymous_extractions_per_minute = 2).await;
    let client = world.at_one_gateway().anonymous();
    send(&client, EXTRACT, "a.txt", b"one").await.expect(200);
    send(&client, EXTRACT, "a.txt", b"two").await.expect(200);
    let limited = send(&client, EXTRACT, "a.txt", b"three").await;
    assert_eq!(code(&limited, 429), "rate_limited");
    assert!(limited.header("retry-after").is_some());
    for _ in 0..3 {
        send(&world.admin, EXTRACT, "a.txt", b"text").await.expect(200);
    }
    send(&client.with_token("sb_forged"), EXTRACT, "a.txt", b"text").await.error(401);
    world.finish().await;
    let closed = self::world(|config| config.extraction.require_auth = true).await;
    send(&closed.anonymous(), EXTRACT, "a.txt", b"text").await.error(401);
    let viewer = closed.user("viewer", "viewer").await;
    assert_eq!(send(&viewer, EXTRACT, "a.txt", b"text").await.expect(200)["content"], json!("text"));
    closed.finish().await;
}

/// The answer follows from the request: a key has no effect, whatever it is.
#[tokio::test]
async fn idempotency_key_has_no_effect_on_quick_extraction() {
    let world = world(|_| {}).await;
    let with_key = async |path: &str, key: &str, bytes: &[u8]| {
        let request = world.admin.request(Method::POST, path).header("idempotency-key", key);
        let request = request.header("content-type", "multipart/form-data; boundary=b");
        world.admin.send(request.body(form(&[("file", Some("a.txt"), bytes)]))).await
    };
    for path in [EXTRACT, "/api/v1/documents/sync"] {
        assert_eq!(with_key(path, "same", b"one").await.expect(200)["content"], "one");
        assert_eq!(with_key(path, "same", b"two").await.expect(200)["content"], "two");
        let long = "k".repeat(300);
        assert_eq!(with_key(path, &long, b"three").await.expect(200)["content"], "three");
    }
    let raw = with_key("/api/v1/extract/raw", "same", b"four").await;
    assert_eq!((raw.status, raw.text().trim()), (200, "four"));
    world.finish().await;
}

#[tokio::test]
async fn viewers_may_submit_documents() {
    let world = world(|_| {}).await;
    let viewer = world.user("viewer", "viewer").await;
    assert_eq!(send(&viewer, EXTRACT, "a.txt", b"text").await.expect(200)["content"], "text");
    for path in ["/api/v1/jobs", "/api/v1/documents"] {
        send(&viewer, path, "a.txt", b"text").await.expect(202);
    }
    send_form(&viewer, "/api/v1/jobs/batch", &[("files", Some("a.txt"), b"text")]).await.expect(202);
    world.finish().await;
}
