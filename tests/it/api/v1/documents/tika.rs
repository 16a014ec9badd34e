//! Apache Tika, whose published interface a stand-in speaks: `GET /version`, `PUT /tika`.

use serde_json::{Value, json};

use super::{EXTRACT, sample, send, world};
use crate::harness::{Client, Reply, Seen, StandIn, World};

/// Tika's page for slides.
const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?><html xmlns="http://www.w3.org/1999/xhtml">
<head><meta name="dc:creator" content="Anna"/><meta name="xmpTPg:NPages" content="2"/>
<meta name="Content-Type" content="application/vnd.ms-powerpoint; charset=x"/><meta name="dc:title" content="Alter Brief"/>
<title>Alter Brief</title></head>
<body><h1>Prüfung</h1><p>Die Weiche liegt an.</p>
<table><tbody><tr><td><p>Gleis</p></td><td><p>Länge</p></td></tr><tr><td><p>1</p></td><td><p>350 m</p></td></tr></tbody></table>
</body></html>"#;

/// A server that gives this status, or a page with 200.
fn tika(status: u16) -> impl Fn(&Seen) -> Reply + Send + 'static {
    move |seen| match (seen.line.as_str(), status) {
        ("GET /version", _) => Reply::Text("Apache Tika 3.2.1".to_owned()),
        ("PUT /tika", 200) => Reply::Text(PAGE.to_owned()),
        ("PUT /tika", status) => Reply::Status(status),
        _ => Reply::Status(404),
    }
}

async fn with_tika(server: &StandIn, seconds: u64) -> World {
    world(|config| {
        config.extraction.tika_url = format!("{}/", server.url);
        config.extraction.tika_seconds = seconds;
    })
    .await
}

/// The start of a presentation before 2007, so that its type is detected.
fn slides(length: usize) -> Vec<u8> {
    let mut bytes = b"\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1".to_vec();
    bytes.extend("PowerPoint Document".encode_utf16().flat_map(u16::to_le_bytes));
    bytes.extend((bytes.len()..length).map(|index| (index % 251) as u8));
    bytes
}

async fn sent_to(client: &Client, query: &str, bytes: &[u8]) -> Value {
    send(client, &format!("{EXTRACT}?{query}"), "a.bin", bytes).await.expect(200)
}

#[tokio::test]
async fn auto_uses_tika_for_types_without_an_engine() {
    let server = StandIn::start(tika(200)).await;
    let world = with_tika(&server, 60).await;
    let client = &world.at_one_gateway();
    let formats = client
        .until("/api/v1/formats".to_owned(), |formats| {
            formats["extraction_engines"] == json!(["auto", "pdfium", "native", "tika"])
        })
        .await;
    assert!(formats["mime_types"].as_array().unwrap().contains(&json!("application/vnd.ms-powerpoint")));
    sent_to(client, "", &sample("report.pdf")).await;
    sent_to(client, "", &sample("letter.docx")).await;
    assert_eq!(server.seen("PUT").len(), 0);
    // Large enough to be on disk, whence it is read twice.
    for length in [100, 3 << 20] {
        let document = slides(length);
        let answer = sent_to(client, "language=eng&front_matter=true", &document).await;
        let expected = "---\ntitle: \"Alter Brief\"\nauthor: \"Anna\"\ncontent_type: \"application/vnd.ms-powerpoint\"\npages: 2\n---\n\n\
            # Prüfung\n\nDie Weiche liegt an.\n\n| Gleis | Länge |\n| --- | --- |\n| 1 | 350 m |";
        assert_eq!(answer["content"], expected);
        assert_eq!(
            (&answer["extractor_used"], &answer["extraction_engine"]),
            (&json!("tika"), &json!("auto"))
        );
        assert_eq!(
            (&answer["mime_type"], &answer["page_count"]),
            (&json!("application/vnd.ms-powerpoint"), &json!(2))
        );
        let seen = server.seen("PUT").pop().unwrap();
        assert!(seen.body == document, "{} of {length} bytes came", seen.body.len());
        assert_eq!((seen.line.as_str(), seen.header("accept")), ("PUT /tika", "text/html"));
        assert_eq!(seen.header("content-length"), length.to_string());
        assert_eq!(seen.header("x-tika-ocrlanguage"), "eng");
    }
    // Each went there in one request.
    assert_eq!(server.seen("PUT").len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn tika_reads_whatever_it_is_asked_to() {
    let server = StandIn::start(tika(200)).await;
    let world = with_tika(&server, 60).await;
    let answer =
        sent_to(&world.admin, "extraction_engine=tika&ocr_engine=none&output_format=plaintext", b"text")
            .await;
    assert_eq!(answer["content"], "Prüfung\n\nDie Weiche liegt an.\n\nGleis\tLänge\n1\t350 m");
    assert_eq!(server.seen("PUT")[0].header("x-tika-ocrskipocr"), "true");
    server.behave(tika(204));
    assert_eq!(sent_to(&world.admin, "extraction_engine=tika", b"text").await["content"], "");
    world.finish().await;
}

#[tokio::test]
async fn what_tika_refuses_has_a_reason() {
    let server = StandIn::start(tika(200)).await;
    let world = with_tika(&server, 60).await;
    let admin = world.at_one_gateway();
    let path = format!("{EXTRACT}?extraction_engine=tika");
    for (status, expected) in [(422, 422), (500, 422), (413, 422), (415, 415), (404, 503), (302, 503)] {
        server.behave(tika(status));
        send(&admin, &path, "a", b"text").await.error(expected);
        assert_eq!(server.seen("PUT").len(), 1, "{status}");
        server.forget();
    }
    server.behave(|_| Reply::Text("<p>".repeat(30 << 20)));
    send(&world.admin, &path, "a", b"text").await.error(422);
    world.finish().await;
}

#[tokio::test]
async fn a_server_that_hangs_is_not_waited_for() {
    let server = StandIn::start(|_| Reply::Hang).await;
    let world = with_tika(&server, 1).await;
    let path = format!("{EXTRACT}?extraction_engine=tika");
    send(&world.admin, &path, "a", b"text").await.error(504);
    world.finish().await;
}

#[tokio::test]
async fn a_server_that_fails_is_left_alone_and_not_offered() {
    let server = StandIn::start(tika(503)).await;
    let world = with_tika(&server, 60).await;
    let client = world.at_one_gateway();
    for _ in 0..8 {
        send(&client, EXTRACT, "a.ppt", &slides(100)).await.error(503);
    }
    assert_eq!(server.seen("PUT").len(), 5);
    let formats = client.get("/api/v1/formats").await.expect(200);
    assert_eq!(formats["extraction_engines"], json!(["auto", "pdfium", "native"]));
    assert!(formats["notes"][0].as_str().unwrap().contains("Tika"), "{formats}");
    sent_to(&world.admin, "", &sample("report.pdf")).await;
    world.finish().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_offered() {
    let gone = StandIn::start(tika(200)).await.url.clone();
    let world = world(|config| config.extraction.tika_url = gone).await;
    let formats = world.admin.get("/api/v1/formats").await.expect(200);
    assert_eq!(formats["extraction_engines"], json!(["auto", "pdfium", "native"]));
    send(&world.admin, EXTRACT, "a.ppt", &slides(100)).await.error(503);
    send(&world.admin, &format!("{EXTRACT}?extraction_engine=tika"), "a", b"text").await.error(503);
    world.finish().await;
}
