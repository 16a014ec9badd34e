use std::io::Write;

use flate2::{Compression, write::ZlibEncoder};
use serde_json::{Value, json};

use super::{EXTRACT, document, sample, send, text, world};
use crate::harness::{Client, sha256};

const TITLE: &str = "Prüfbericht der Weiche";
const REPORT: &str = "Signalbox Werk 7

# Prüfbericht der Weiche

Die Weiche 12 wurde im Frühjahr geprüft. Der Antrieb läuft ruhig, die Zungen liegen an, und die Überwachung der \
Endlage meldet zuverlässig. Eine Instandsetzung ist nicht erforderlich.

## 1 Umfang

- Antrieb und Verschluss
- Zungen und Backenschienen

## 2 Messwerte

| Größe | Wert | Grenze |
| --- | --- | --- |
| Stellzeit | 4,2 s | 6,0 s |
| Stellkraft | 2,8 kN | 4,5 kN |

## 3 Ergebnis

1. Keine Mängel
2. Nächste Prüfung im Herbst";

#[tokio::test]
async fn a_pdf_keeps_its_headings_lists_and_tables() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let pdf = sample("report.pdf");
    let answer = send(&client, EXTRACT, "../x/report.pdf", &pdf).await.expect(200);
    assert_eq!(answer["content"], REPORT);
    for (field, expected) in [
        ("status", json!("completed")),
        ("filename", json!("report.pdf")),
        ("mime_type", json!("application/pdf")),
        ("size_bytes", json!(pdf.len())),
        ("output_format", json!("markdown")),
        ("error", Value::Null),
        ("extraction_engine", json!("auto")),
        ("extractor_used", json!("pdfium")),
        ("ocr_engine_used", Value::Null),
        ("language", json!("deu")),
        ("page_count", json!(1)),
        ("confidence", json!(1.0)),
        ("pages_ocred", json!([])),
        ("processors_applied", json!(["cleanup", "structure"])),
        ("warnings", json!([])),
        ("sha256", json!(sha256(&pdf))),
    ] {
        assert_eq!(answer[field], expected, "{field}");
    }
    let plain = text(&client, "report.pdf", "plaintext").await;
    assert!(plain.contains("Prüfbericht der Weiche\n\nDie Weiche 12") && !plain.contains("---"), "{plain}");
    let json: Value = serde_json::from_str(&text(&client, "report.pdf", "json").await).unwrap();
    assert_eq!(json["content"], REPORT);
    assert_eq!(json["metadata"]["title"], "Prüfbericht der Weiche");
    assert_eq!(json["blocks"][1]["level"], 1);
    assert_eq!(json["blocks"][6]["metadata"]["rows"][1][1], "4,2 s");
    // Text at the edge of the page is in no block, but not lost.
    assert_eq!(json["pages"][0]["number"], 1);
    let (mut above, page) = (0.0, &json["pages"][0]);
    for block in json["blocks"].as_array().unwrap() {
        let side = |at: usize| block["bbox"][at].as_f64().unwrap();
        assert!(block["page"] == 1 && 0.0 < side(0) && side(0) < side(2) && side(1) < side(3), "{block}");
        assert!(side(2) < page["width"].as_f64().unwrap(), "{block}");
        assert!(above < side(1) && side(3) < page["height"].as_f64().unwrap(), "{block}");
        above = side(1);
    }
    world.finish().await;
}

#[tokio::test]
async fn docling_document_has_all_blocks_with_their_places() {
    let world = world(|_| {}).await;
    let text = text(&world.anonymous(), "report.pdf", "docling").await;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&document["schema_name"], &document["name"]), (&json!("DoclingDocument"), &json!(TITLE)));
    assert_eq!(
        (&document["texts"][1]["label"], &document["texts"][1]["text"]),
        (&json!("section_header"), &json!(TITLE))
    );
    assert_eq!(document["tables"][0]["data"]["table_cells"][4]["text"], "4,2 s");
    assert_eq!(document["body"]["children"].as_array().unwrap().len(), 9);
    assert_eq!(document["tables"][0]["prov"][0]["page_no"], 1);
    world.finish().await;
}

#[tokio::test]
async fn columns_are_read_one_after_the_other() {
    let world = world(|_| {}).await;
    let text = text(&world.anonymous(), "columns.pdf", "plaintext").await;
    let at = |words: &str| text.find(words).unwrap_or_else(|| panic!("{words} is not in {text}"));
    assert!(
        at("Two Trains") < at("The left column") && at("at this hour") < at("The right column"),
        "{text}"
    );
    assert_eq!(
        text.matches("which leaves the yard before dawn and climbs the long grade").count(),
        3,
        "{text}"
    );
    world.finish().await;
}

#[tokio::test]
async fn a_scan_is_recognised_page_by_page() {
    let world = world(|_| {}).await;
    for (name, engine) in [("scan.pdf", "pdfium"), ("scan.png", "native")] {
        let answer = send(&world.admin, EXTRACT, name, &sample(name)).await.expect(200);
        assert_eq!(
            (&answer["extractor_used"], &answer["ocr_engine_used"]),
            (&json!(engine), &json!("tesseract"))
        );
        assert_eq!(answer["pages_ocred"], json!([1]));
        assert!(answer["confidence"].as_f64().is_some_and(|sure| sure > 0.7 && sure < 1.0), "{answer}");
        let text = answer["content"].as_str().unwrap();
        for words in
            ["Überwachung der Endlage", "Instandsetzung ist nicht erforderlich", "Stellkraft", "Messwerte"]
        {
            assert!(text.contains(words), "{words} is not in {text}");
        }
    }
    let path = format!("{EXTRACT}?ocr_enabled=false");
    let unread = send(&world.admin, &path, "scan.pdf", &sample("scan.pdf")).await.expect(200);
    assert_eq!((&unread["ocr_engine_used"], &unread["pages_ocred"]), (&Value::Null, &json!([])));
    world.finish().await;
}

/// Programs that mistake pixels for points write pages of 200 inches.
#[tokio::test]
async fn a_scan_on_a_page_as_large_as_a_house_is_recognised() {
    let world = world(|_| {}).await;
    let mut scan = sample("scan.pdf");
    for (size, other) in
        [("595.68 273.6 ]", "14400 14400  ]"), ("595.680000 0 0 273.600000", "14400.0000 0 0 6614.00000")]
    {
        let at = scan.windows(size.len()).position(|part| part == size.as_bytes()).unwrap();
        scan[at..at + size.len()].copy_from_slice(other.as_bytes());
    }
    let read = document(&world.admin, "scan.pdf", &scan).await;
    let text = read["content"].as_str().unwrap();
    for word in ["Instandsetzung", "Backenschienen", "Stellkraft"] {
        assert!(text.contains(word), "{word}: {read}");
    }
    assert_eq!(read["pages"][0]["width"], 14400.0);
    world.finish().await;
}

#[tokio::test]
async fn office_files_and_mails_are_read() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    for (name, expected) in [
        (
            "letter.docx",
            "# Brief\n\nSehr geehrte Damen und Herren,\n\n- erstens\n\n| Posten | Preis |\n| --- | --- |",
        ),
        (
            "letter.doc",
            "Brief\n\nSehr geehrte Damen und Herren,\n\nerstens\n\n| Posten | Preis |\n| --- | --- |",
        ),
        ("sheet.xlsx", "## Werte\n\n| Gleis | Länge |\n| --- | --- |\n| 1 | 350.5 |"),
        ("slides.pptx", "## Überblick\n\n- Erster Punkt"),
        (
            "letter.odt",
            "# Brief\n\nSehr geehrte Damen und Herren,\n\n- erstens\n\n| Posten | Preis |\n| --- | --- |",
        ),
        ("sheet.ods", "## Werte\n\n| Gleis | Länge |\n| --- | --- |\n| 1 | 350.5 |"),
        ("sheet.xls", "## Werte\n\n| Gleis | Länge |\n| --- | --- |\n| 1 | 350.5 |"),
        ("slides.odp", "## Überblick\n\n- Erster Punkt"),
        ("book.epub", "# Erstens\n\nDie Weiche liegt an.\n\n# Zweitens\n\n1. Signal\n2. Gleis"),
        (
            "mail.eml",
            "# Störung an Gleis 3\n\nFrom: Anna \\<anna@example.org>  \nTo: werk@example.org\n\nGuten Morgen,\n\n\
             das Signal bleibt dunkel.\n\n- Attachment: foto.bin",
        ),
    ] {
        assert_eq!(text(&client, name, "markdown").await, expected, "{name}");
    }
    let inline: [(&str, &[u8], &str, &str); 5] = [
        (
            "a.html",
            b"<!doctype html><title>T</title><h1>A</h1><p>b <i>c</i><ul><li>d</ul><script>x</script>",
            "text/html",
            "# A\n\nb c\n\n- d",
        ),
        ("a.csv", b"a;b\n1;\"x;y\"\n", "text/csv", "| a | b |\n| --- | --- |\n| 1 | x;y |"),
        ("a.md", b"# A\n\n1. b\n2. c\n", "text/markdown", "# A\n\n1. b\n2. c"),
        ("a.txt", b"Gr\xFC\xDFe\r\n\r\n\r\nEnde", "text/plain", "Grüße\n\nEnde"),
        ("a.rtf", b"{\\rtf1\\ansi Gr\\'fc\\'dfe\\par}", "application/rtf", "Grüße"),
    ];
    for (name, bytes, kind, expected) in inline {
        let answer = send(&client, EXTRACT, name, bytes).await.expect(200);
        assert_eq!((&answer["mime_type"], &answer["content"]), (&json!(kind), &json!(expected)));
        assert_eq!(answer["extractor_used"], "native");
    }
    world.finish().await;
}

/// Without a mark or a declaration, the encoding is detected from the frequency of letter pairs.
#[tokio::test]
async fn legacy_encodings_are_detected() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let russian = "Стрелка осмотрена весной, замечаний нет. Следующий осмотр осенью.";
    let japanese = "転てつ器は春に点検され、異常はありませんでした。次回の点検は秋です。";
    let of_russian: &[u8] = b"\xD1\xF2\xF0\xE5\xEB\xEA\xE0 \xEE\xF1\xEC\xEE\xF2\xF0\xE5\xED\xE0 \xE2\xE5\xF1\xED\xEE\xE9, \xE7\xE0\xEC\xE5\xF7\xE0\xED\xE8\xE9 \xED\xE5\xF2. \xD1\xEB\xE5\xE4\xF3\xFE\xF9\xE8\xE9 \xEE\xF1\xEC\xEE\xF2\xF0 \xEE\xF1\xE5\xED\xFC\xFE.";
    let of_japanese: &[u8] = b"\x93]\x82\xC4\x82\xC2\x8A\xED\x82\xCD\x8Ft\x82\xC9\x93_\x8C\x9F\x82\xB3\x82\xEA\x81A\x88\xD9\x8F\xED\x82\xCD\x82\xA0\x82\xE8\x82\xDC\x82\xB9\x82\xF1\x82\xC5\x82\xB5\x82\xBD\x81B\x8E\x9F\x89\xF1\x82\xCC\x93_\x8C\x9F\x82\xCD\x8FH\x82\xC5\x82\xB7\x81B";
    for (bytes, expected) in [(of_russian, russian), (of_japanese, japanese)] {
        let page = [b"<!doctype html><p>".as_slice(), bytes].concat();
        for (name, bytes) in [("a.txt", bytes), ("a.html", page.as_slice())] {
            assert_eq!(send(&client, EXTRACT, name, bytes).await.expect(200)["content"], expected, "{name}");
        }
        let two_bytes: Vec<u8> = expected.encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(send(&client, EXTRACT, "a.txt", &two_bytes).await.expect(200)["content"], expected);
    }
    world.finish().await;
}

#[tokio::test]
async fn every_kind_of_tiff_is_read() {
    let world = world(|_| {}).await;
    let path = format!("{EXTRACT}?language=eng&output_format=plaintext");
    let answer = send(&world.admin, &path, "kinds.tiff", &sample("kinds.tiff")).await.expect(200);
    assert_eq!((&answer["page_count"], &answer["warnings"]), (&json!(12), &json!([])));
    let text = answer["content"].as_str().unwrap();
    for words in ["points were inspected in spring", "defects were found", "inspection is due in autumn"] {
        assert_eq!(text.matches(words).count(), 12, "{words} in {text}");
    }
    world.finish().await;
}

#[tokio::test]
async fn text_under_a_shadow_is_recognised() {
    let world = world(|_| {}).await;
    let path = format!("{EXTRACT}?output_format=plaintext");
    let answer = send(&world.admin, &path, "shadow.jpg", &sample("shadow.jpg")).await.expect(200);
    let text = answer["content"].as_str().unwrap();
    for words in ["Prüfbericht der Weiche", "Die Weiche 12 wurde", "Stellkraft", "nicht erforderlich"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    world.finish().await;
}

#[tokio::test]
async fn many_at_once_are_not_mixed_up() {
    let world = world(|_| {}).await;
    let calls = (0..30).map(|number| {
        let client: Client = world.anonymous();
        async move {
            let bytes = format!("Only document {number} says {number}.");
            let answer = send(&client, EXTRACT, "a.txt", bytes.as_bytes()).await.expect(200);
            assert_eq!(answer["content"], bytes);
            answer["id"].as_str().unwrap().to_owned()
        }
    });
    let mut ids = futures::future::join_all(calls).await;
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 30);
    world.finish().await;
}

#[tokio::test]
async fn pages_that_lie_on_their_side_are_read_upright() {
    let world = world(|_| {}).await;
    // By what is on them, and by what the file says of its frames.
    for (name, pages) in [("turned.pdf", 3), ("frames.tiff", 3), ("camera.jpg", 1)] {
        let path = format!("{EXTRACT}?output_format=json");
        let answer = send(&world.admin, &path, name, &sample(name)).await.expect(200);
        let all: Vec<u64> = (1..=pages).collect();
        assert_eq!((&answer["page_count"], &answer["pages_ocred"]), (&json!(pages), &json!(all)), "{name}");
        let document: Value = serde_json::from_str(answer["content"].as_str().unwrap()).unwrap();
        let text = document["content"].as_str().unwrap();
        for words in ["Instandsetzung ist nicht erforderlich", "Zungen und Backenschienen", "Stellkraft"] {
            assert_eq!(text.matches(words).count() as u64, pages, "{words} in {name}: {text}");
        }
        for page in document["pages"].as_array().unwrap() {
            assert!(page["width"].as_f64() > page["height"].as_f64(), "{name}: {page}");
        }
    }
    world.finish().await;
}

/// A PDF with a page for each of `contents`, which are compressed and may have been damaged since.
fn paged(contents: &[Vec<u8>]) -> Vec<u8> {
    let count = contents.len();
    let kids: String = (0..count).map(|page| format!("{} 0 R ", 4 + 2 * page)).collect();
    let mut objects = vec![
        b"<</Type/Catalog/Pages 2 0 R>>".to_vec(),
        format!("<</Type/Pages/Kids[{kids}]/Count {count}>>").into_bytes(),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>".to_vec(),
    ];
    for (page, content) in contents.iter().enumerate() {
        let stream = 5 + 2 * page;
        objects.push(
            format!(
                "<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Resources<</Font<</F 3 0 R>>>>/Contents {stream} 0 R>>"
            )
            .into_bytes(),
        );
        let head = format!("<</Length {}/Filter/FlateDecode>>stream\n", content.len());
        objects.push([head.as_bytes(), content, b"\nendstream"].concat());
    }
    let mut file = b"%PDF-1.5\n".to_vec();
    for (index, object) in objects.iter().enumerate() {
        file.extend(format!("{} 0 obj\n", index + 1).bytes());
        file.extend(object);
        file.extend(b"\nendobj\n");
    }
    file.extend(b"trailer<</Root 1 0 R>>\n%%EOF\n");
    file
}

fn compressed(text: &str) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

#[tokio::test]
async fn pages_whose_content_is_damaged_are_named() {
    let world = world(|_| {}).await;
    let client = world.anonymous();
    let clause = |number| compressed(&format!("BT /F 12 Tf 50 700 Td (Clause {number} applies.) Tj ET"));
    let mut damaged = clause(2);
    damaged.iter_mut().for_each(|byte| *byte ^= 0x55);
    let cut = clause(2)[..10].to_vec();
    for lost in [damaged, cut] {
        let file = paged(&[clause(1), lost.clone(), clause(3)]);
        let answer = send(&client, EXTRACT, "a.pdf", &file).await.expect(200);
        let content = answer["content"].as_str().unwrap();
        assert!(content.contains("Clause 1 applies.") && content.contains("Clause 3 applies."), "{content}");
        let warning = "page 2 shows nothing, and the file is damaged: its content may be lost";
        assert_eq!((&answer["warnings"], &answer["page_count"]), (&json!([warning]), &json!(3)));
        let confidence = answer["confidence"].as_f64().unwrap();
        assert!(confidence < 0.67, "{confidence}");
        let refused = send(&client, EXTRACT, "a.pdf", &paged(&[lost])).await;
        assert_eq!(refused.expect(422)["code"], "corrupt_file");
    }
    // An empty page of a file that is whole is one.
    let blank = send(&client, EXTRACT, "a.pdf", &paged(&[clause(1), compressed(""), clause(3)])).await;
    assert_eq!(blank.expect(200)["warnings"], json!([]));
    world.finish().await;
}
