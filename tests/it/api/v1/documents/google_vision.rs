//! Google Cloud Vision, whose published interface a stand-in speaks: `POST /v1/images:annotate`.

use serde_json::{Value, json};

use super::{EXTRACT, sample, send, world};
use crate::harness::{Reply, StandIn, World};
use signalbox_config::Secret;

const KEY: &str = "a-key-that-stays-secret";

async fn with_vision(server: &StandIn, seconds: u64) -> World {
    world(|config| {
        config.extraction.google_vision_url = server.url.clone();
        config.extraction.google_vision_key = Secret::new(KEY.to_owned());
        config.extraction.google_vision_seconds = seconds;
    })
    .await
}

/// A word with its place, as the service returns it.
fn word(text: &str, (left, top): (u32, u32), confidence: f32, end: &str) -> Value {
    let (right, bottom) = (left + 30 * text.len() as u32, top + 50);
    let mut symbols: Vec<Value> = text
        .chars()
        .map(|letter| json!({"text": letter.to_string(), "confidence": confidence, "property": {"detectedLanguages": []}}))
        .collect();
    symbols.last_mut().unwrap()["property"]["detectedBreak"] = json!({"type": end});
    let vertices = json!([{"x": left, "y": top}, {"x": right, "y": top}, {"x": right, "y": bottom}, {"x": left, "y": bottom}]);
    json!({"confidence": confidence, "boundingBox": {"vertices": vertices}, "symbols": symbols})
}

fn annotation() -> Value {
    let words = json!([
        word("Die", (300, 300), 1.0, "SPACE"),
        word("Weiche", (450, 300), 0.5, "SPACE"),
        word("liegt", (700, 300), 1.0, "LINE_BREAK"),
        word("an", (300, 360), 1.0, ""),
        word(".", (360, 360), 1.0, "LINE_BREAK"),
    ]);
    let blocks = json!([{"blockType": "TEXT", "paragraphs": [{"words": words}]}]);
    json!({"responses": [{"fullTextAnnotation": {"pages": [{"width": 2480, "height": 1187, "blocks": blocks}]}}]})
}

#[tokio::test]
async fn pages_are_recognised_by_the_service() {
    let server = StandIn::start(|_| Reply::Json(annotation())).await;
    let world = with_vision(&server, 60).await;
    let formats = world.admin.get("/api/v1/formats").await.expect(200);
    assert_eq!(formats["ocr_engines"], json!(["none", "tesseract", "google_vision"]));
    let admin = world.at_one_gateway();
    let path = format!("{EXTRACT}?ocr_engine=google_vision&output_format=plaintext");
    for name in ["scan.pdf", "scan.png"] {
        let answer = send(&admin, &path, name, &sample(name)).await.expect(200);
        assert_eq!(answer["content"], "Die Weiche liegt an.", "{name}");
        assert_eq!(
            (&answer["ocr_engine_used"], &answer["pages_ocred"]),
            (&json!("google_vision"), &json!([1]))
        );
        let sure = answer["confidence"].as_f64().unwrap();
        assert!((sure - 14.0 / 17.0).abs() < 0.01, "{sure}");
    }
    let seen = &server.seen("POST")[0];
    assert_eq!((seen.line.as_str(), seen.header("x-goog-api-key")), ("POST /v1/images:annotate", KEY));
    let request = &seen.json()["requests"][0];
    assert_eq!(request["features"], json!([{"type": "DOCUMENT_TEXT_DETECTION"}]));
    assert_eq!(request["imageContext"]["languageHints"], json!(["de"]));
    // A JPEG in Base64.
    assert!(request["image"]["content"].as_str().unwrap().starts_with("/9j/"));
    // Pages of one document go there at the same time, and come back where they belong.
    let answer = send(&admin, &path, "turned.pdf", &sample("turned.pdf")).await.expect(200);
    assert_eq!(answer["pages_ocred"], json!([1, 2, 3]));
    // A page with text is not sent to the service.
    send(&admin, &path, "report.pdf", &sample("report.pdf")).await.expect(200);
    assert_eq!(server.seen("POST").len(), 5);
    world.finish().await;
}

#[tokio::test]
async fn what_the_service_refuses_has_a_reason() {
    let server = StandIn::start(|_| Reply::Status(403)).await;
    let world = with_vision(&server, 60).await;
    let path = format!("{EXTRACT}?ocr_engine=google_vision");
    let sent = async || send(&world.admin, &path, "scan.png", &sample("scan.png")).await;
    let refused = sent().await;
    refused.error(503);
    assert!(
        refused.text().contains("google_vision_key") && !refused.text().contains(KEY),
        "{}",
        refused.text()
    );
    for (code, status) in [(3, 422), (7, 503), (14, 503)] {
        server
            .behave(move |_| Reply::Json(json!({"responses": [{"error": {"code": code, "message": "m"}}]})));
        sent().await.error(status);
    }
    // Last, because it is remembered.
    server.behave(|_| Reply::Json(json!({"responses": [{}]})));
    assert_eq!(sent().await.expect(200)["warnings"], json!(["no text was recognised on page 1"]));
    server.forget();
    let unknown = format!("{path}&language=xyz");
    send(&world.admin, &unknown, "scan.png", &sample("scan.png")).await.error(422);
    assert_eq!(server.seen("").len(), 0);
    world.finish().await;
}

#[tokio::test]
async fn a_service_that_hangs_is_not_waited_for() {
    let server = StandIn::start(|_| Reply::Hang).await;
    let world = with_vision(&server, 1).await;
    let path = format!("{EXTRACT}?ocr_engine=google_vision");
    send(&world.admin, &path, "scan.png", &sample("scan.png")).await.error(503);
    world.finish().await;
}

#[tokio::test]
async fn a_busy_service_is_asked_again_but_not_for_ever() {
    let server = StandIn::start(|_| Reply::Busy(429)).await;
    let world = with_vision(&server, 60).await;
    let admin = world.at_one_gateway();
    let path = format!("{EXTRACT}?ocr_engine=google_vision");
    send(&admin, &path, "scan.png", &sample("scan.png")).await.error(503);
    assert_eq!(server.seen("POST").len(), 3);
    let tries = std::sync::atomic::AtomicUsize::new(0);
    server.behave(move |_| match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0 => Reply::Busy(503),
        _ => Reply::Json(annotation()),
    });
    send(&admin, &path, "scan.png", &sample("scan.png")).await.expect(200);
    world.finish().await;
}
