use serde_json::{Value, json};

use super::{EXTRACT, sample, send, send_form, world};

const RAW: &str = "/api/v1/extract/raw";

#[tokio::test]
async fn options_travel_by_query_and_by_form() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let pdf = sample("report.pdf");
    let file = ("file", Some("a.pdf"), pdf.as_slice());
    let by_form = [("output_format", None, &b"plaintext"[..]), file, ("language", None, b"en")];
    let answer = send_form(&client, EXTRACT, &by_form).await.expect(200);
    assert_eq!((&answer["output_format"], &answer["language"]), (&json!("plaintext"), &json!("eng")));
    let path = format!("{EXTRACT}?output_format=json&extraction_engine=pymupdf&processors=cleanup&unknown=1");
    let answer = send_form(&client, &path, &by_form).await.expect(200);
    assert_eq!((&answer["output_format"], &answer["extraction_engine"]), (&json!("json"), &json!("pymupdf")));
    assert_eq!(answer["processors_applied"], json!(["cleanup"]));
    assert!(!answer["content"].as_str().unwrap().contains("\"heading\""), "{answer}");
    let path = "/api/v1/documents/sync?front_matter=true";
    let answer = send(&client, path, "a.pdf", &pdf).await.expect(200);
    let head = "---\ntitle: \"Prüfbericht der Weiche\"\nauthor: \"Signalbox\"\n";
    assert!(answer["content"].as_str().unwrap().starts_with(head), "{answer}");
    world.finish().await;
}

#[tokio::test]
async fn chunks_hold_all_words_with_their_places() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let pdf = sample("report.pdf");
    let path = format!("{EXTRACT}?output_format=json&chunks=true&chunk_words=50");
    let answer = send(&client, &path, "a.pdf", &pdf).await.expect(200);
    let content: Value = serde_json::from_str(answer["content"].as_str().unwrap()).unwrap();
    let chunks = content["chunks"].as_array().unwrap();
    assert!(chunks.len() > 1, "{content}");
    for chunk in chunks {
        let words = chunk["text"].as_str().unwrap().split_whitespace().count();
        assert_eq!(chunk["words"], words);
        assert!(
            words <= 50 && chunk["pages"][0].is_number() && chunk["places"][0]["bbox"][3].is_number(),
            "{chunk}"
        );
    }
    let path = format!("{EXTRACT}?output_format=plaintext");
    let plain = send(&client, &path, "a.pdf", &pdf).await.expect(200);
    let texts: Vec<_> = chunks.iter().map(|chunk| chunk["text"].as_str().unwrap()).collect();
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&texts.join(" ")), words(plain["content"].as_str().unwrap()));
    for (query, field) in [
        ("output_format=markdown&chunks=true", "chunks"),
        ("output_format=json&chunk_words=49", "chunk_words"),
        ("output_format=json&chunk_words=many", "chunk_words"),
    ] {
        let refused = send(&client, &format!("{EXTRACT}?{query}"), "a.pdf", &pdf).await.expect(422);
        assert_eq!(refused["errors"][0]["pointer"], format!("/{field}"));
    }
    world.finish().await;
}

#[tokio::test]
async fn the_raw_text_has_the_type_of_its_format() {
    let world = world(|_| {}).await;
    for (format, kind) in [
        ("markdown", "text/markdown; charset=utf-8"),
        ("plaintext", "text/plain; charset=utf-8"),
        ("json", "application/json"),
        ("docling", "application/json"),
        ("hocr", "application/xhtml+xml"),
        ("alto", "application/xml"),
    ] {
        let path = format!("{RAW}?output_format={format}");
        let answer = send(&world.anonymous(), &path, "a.pdf", &sample("report.pdf")).await;
        assert_eq!((answer.status, answer.header("content-type")), (200, Some(kind)));
        assert!(answer.text().contains("Stellkraft"));
    }
    world.finish().await;
}

#[tokio::test]
async fn formats_list_the_available_engines() {
    let with = world(|_| {}).await;
    let formats = with.anonymous().get("/api/v1/formats").await.expect(200);
    assert_eq!(formats["extraction_engines"], json!(["auto", "pdfium", "native"]));
    assert_eq!(formats["ocr_engines"], json!(["none", "tesseract"]));
    assert_eq!(formats["output_formats"], json!(["markdown", "json", "plaintext"]));
    assert_eq!(formats["more_output_formats"], json!(["docling", "hocr", "alto"]));
    assert_eq!((&formats["max_file_size_mb"], &formats["notes"]), (&json!(100), &json!([])));
    assert!(formats["languages"].as_array().unwrap().contains(&json!("deu")));
    assert!(formats["mime_types"].as_array().unwrap().contains(&json!("application/pdf")));
    let health = with.anonymous().get("/api/v1/health").await.expect(200);
    assert_eq!(
        (&health["extractors"], &health["ocr_available"]),
        (&json!(["pdfium", "native"]), &json!(true))
    );
    with.finish().await;
    let without = world(|config| {
        config.extraction.pdfium = "/nowhere/libpdfium.so".to_owned();
        config.extraction.tessdata = "/nowhere".to_owned();
    })
    .await;
    let client = without.anonymous();
    let formats = client.get("/api/v1/formats").await.expect(200);
    assert_eq!(formats["extraction_engines"], json!(["auto", "native"]));
    assert_eq!((&formats["ocr_engines"], &formats["languages"]), (&json!(["none"]), &json!([])));
    assert!(!formats["mime_types"].as_array().unwrap().contains(&json!("application/pdf")));
    assert_eq!(formats["notes"].as_array().unwrap().len(), 2, "{formats}");
    send(&client, EXTRACT, "a.pdf", &sample("report.pdf")).await.error(503);
    send(&client, &format!("{EXTRACT}?extraction_engine=pdfium"), "a.txt", b"text").await.error(503);
    send(&client, EXTRACT, "a.txt", b"text").await.expect(200);
    without.finish().await;
}
