//! PDFs with the recognised words as unseen text.

use std::process::Command;

use futures::future::join_all;
use serde_json::{Value, json};

use super::{EXTRACT, sample, send, world, world_with_timeout};
use crate::harness::{Answer, Client};

const SEARCHABLE: &str = "/api/v1/extract/searchable-pdf";

/// A word and its place on its page.
#[derive(Debug, Clone, PartialEq)]
struct Placed {
    text: String,
    page: u64,
    bbox: [f64; 4],
    is_recognised: bool,
}

impl Placed {
    fn is_near(&self, other: &Self) -> bool {
        let differs = |side: usize| (self.bbox[side] - other.bbox[side]).abs();
        self.page == other.page && (0..4).all(|side| differs(side) < 3.0)
    }
}

/// Words of a document in which nothing is recognised, unless `recognises`, with the width of each page.
async fn words(client: &Client, name: &str, bytes: &[u8], recognises: bool) -> (Vec<Placed>, Value) {
    let engine = if recognises { "tesseract" } else { "none" };
    let path = format!("{EXTRACT}?output_format=json&words=true&ocr_engine={engine}");
    let answer = send(client, &path, name, bytes).await.expect(200);
    let document: Value = serde_json::from_str(answer["content"].as_str().unwrap()).unwrap();
    let blocks = document["blocks"].as_array().unwrap().iter();
    let found = blocks.filter_map(|block| block["words"].as_array()).flatten().map(|word| {
        let sides = word["places"][0]["bbox"].as_array().unwrap();
        Placed {
            text: word["text"].as_str().unwrap().to_owned(),
            page: word["places"][0]["page"].as_u64().unwrap(),
            bbox: [0, 1, 2, 3].map(|side| sides[side].as_f64().unwrap()),
            is_recognised: !word["confidence"].is_null(),
        }
    });
    (found.collect(), document)
}

fn made(answer: Answer) -> Vec<u8> {
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/pdf")));
    assert!(answer.body.starts_with(b"%PDF-"));
    answer.body.to_vec()
}

#[tokio::test]
async fn recognised_words_are_found_where_the_picture_shows_them() {
    let world = world(|_| {}).await;
    for (name, pages) in [("scan.pdf", 1), ("scan.png", 1), ("stamped.pdf", 1)] {
        let original = sample(name);
        let answer = send(&world.admin, SEARCHABLE, name, &original).await;
        assert_eq!(answer.header("x-recognised-pages"), Some(pages.to_string().as_str()), "{name}");
        assert!(answer.header("content-disposition").unwrap().starts_with("attachment; filename=\"s"));
        let pdf = made(answer);
        let (before, _) = words(&world.admin, name, &original, true).await;
        let (after, _) = words(&world.admin, "a.pdf", &pdf, false).await;
        let recognised: Vec<_> = before.iter().filter(|word| word.is_recognised).collect();
        assert!(recognised.len() > 20, "{name}: {before:?}");
        let is_kept =
            |word: &&&Placed| after.iter().any(|found| found.text == word.text && found.is_near(word));
        let kept = recognised.iter().filter(is_kept).count();
        assert!(kept * 50 >= recognised.len() * 49, "{name}: {kept} of {recognised:?} in {after:?}");
        // Text of the file stays once.
        for own in before.iter().filter(|word| !word.is_recognised) {
            let count = |words: &[Placed]| words.iter().filter(|word| word.text == own.text).count();
            assert_eq!(count(&after), count(&before), "{name}: {own:?}");
        }
        // With a layer nothing more is recognised.
        let again = send(&world.admin, SEARCHABLE, "a.pdf", &pdf).await;
        assert_eq!(again.header("x-recognised-pages"), Some("0"));
        assert_eq!(made(again), pdf, "{name}");
    }
    world.finish().await;
}

/// Poppler reads the layer too.
#[tokio::test]
async fn other_programs_find_the_words() {
    let world = world(|_| {}).await;
    let pdf = made(send(&world.admin, SEARCHABLE, "scan.pdf", &sample("scan.pdf")).await);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pdf");
    std::fs::write(&file, &pdf).unwrap();
    let read = Command::new("pdftotext").arg("-layout").arg(&file).arg("-").output();
    let read = read.expect("pdftotext is installed by tools/bootstrap tests");
    let text = String::from_utf8(read.stdout).unwrap();
    let (words, _) = words(&world.admin, "a.pdf", &pdf, false).await;
    let found = words.iter().filter(|word| text.contains(&word.text)).count();
    assert!(found * 50 >= words.len() * 49, "{found} of {words:?} in {text}");
    world.finish().await;
}

/// The places of words on a page that lies on its side are those of the page as the file shows it.
#[tokio::test]
async fn words_of_turned_pages_stand_where_the_file_shows_them() {
    let world = world(|_| {}).await;
    let original = sample("turned.pdf");
    let answer = send(&world.admin, SEARCHABLE, "turned.pdf", &original).await;
    assert_eq!(answer.header("x-recognised-pages"), Some("3"));
    let pdf = made(answer);
    let (read, document) = words(&world.admin, "turned.pdf", &original, true).await;
    let (after, _) = words(&world.admin, "a.pdf", &pdf, false).await;
    let mut kept = 0;
    for word in &read {
        let page = &document["pages"][word.page as usize - 1];
        let turns = page["rotation"].as_u64().unwrap() / 90;
        let (width, height) = (page["width"].as_f64().unwrap(), page["height"].as_f64().unwrap());
        let (x, y) = ((word.bbox[0] + word.bbox[2]) / 2.0, (word.bbox[1] + word.bbox[3]) / 2.0);
        let (x, y) = match turns {
            1 => (y, width - x),
            2 => (width - x, height - y),
            3 => (height - y, x),
            _ => (x, y),
        };
        let holds = |[left, top, right, bottom]: [f64; 4]| {
            (left - 3.0..=right + 3.0).contains(&x) && (top - 3.0..=bottom + 3.0).contains(&y)
        };
        kept += usize::from(
            after.iter().any(|found| found.text == word.text && found.page == word.page && holds(found.bbox)),
        );
    }
    assert!(read.len() > 60 && kept * 20 >= read.len() * 19, "{kept} of {read:?} in {after:?}");
    world.finish().await;
}

#[tokio::test]
async fn documents_with_text_come_back_as_they_are() {
    let world = world(|_| {}).await;
    let original = sample("report.pdf");
    let answer = send(&world.admin, SEARCHABLE, "report.pdf", &original).await;
    assert_eq!(answer.header("x-recognised-pages"), Some("0"));
    assert_eq!(made(answer), original);
    world.finish().await;
}

#[tokio::test]
async fn pictures_become_a_page_for_each_frame() {
    let world = world(|_| {}).await;
    for (name, pages) in [("frames.tiff", 3), ("camera.jpg", 1)] {
        let pdf = made(send(&world.anonymous(), SEARCHABLE, name, &sample(name)).await);
        let path = format!("{EXTRACT}?output_format=plaintext&ocr_engine=none");
        let answer = send(&world.admin, &path, "a.pdf", &pdf).await.expect(200);
        assert_eq!(answer["page_count"], json!(pages), "{name}");
        for word in ["Instandsetzung", "Backenschienen", "Stellkraft"] {
            let text = answer["content"].as_str().unwrap();
            assert_eq!(text.matches(word).count(), pages, "{word} in {name}: {text}");
        }
    }
    world.finish().await;
}

/// There is one parser, and no request may wait for it.
#[tokio::test]
async fn identical_requests_at_once_are_worked_on_once() {
    let world = world_with_timeout(0, |config| config.extraction.parsers = 1).await;
    let client = world.at_one_gateway();
    let scan = sample("scan.pdf");
    for path in [SEARCHABLE, EXTRACT] {
        let answers = join_all((0..16).map(|_| send(&client, path, "scan.pdf", &scan))).await;
        for answer in answers {
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        }
    }
    world.finish().await;
}

#[tokio::test]
async fn refusals_are_those_of_extraction() {
    let world = world(|config| config.extraction.max_file_bytes = 1 << 20).await;
    let client = world.anonymous();
    let code = async |query: &str, name: &str, bytes: &[u8], status: u16| {
        let answer = send(&client, &format!("{SEARCHABLE}?{query}"), name, bytes).await;
        answer.error(status);
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        body["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(code("", "a.pdf", b"", 400).await, "empty_file");
    assert_eq!(code("", "a.pdf", &sample("encrypted.pdf"), 422).await, "encrypted_file");
    assert_eq!(code("", "a.pdf", &sample("truncated.pdf"), 422).await, "corrupt_file");
    assert_eq!(code("", "a.docx", &sample("letter.docx"), 415).await, "unsupported_type");
    assert_eq!(code("", "a", b"\x7fELF\x02\x01\x01\0\0\0", 415).await, "unsupported_type");
    assert_eq!(code("ocr_engine=none", "a.pdf", &sample("scan.pdf"), 422).await, "invalid_field");
    assert_eq!(code("language=xyz", "a.pdf", &sample("scan.pdf"), 422).await, "unsupported_language");
    assert_eq!(code("", "a.pdf", &vec![b'a'; (1 << 20) + 1], 413).await, "too_large");
    world.finish().await;
    let closed = self::world(|config| config.extraction.require_auth = true).await;
    send(&closed.anonymous(), SEARCHABLE, "scan.png", &sample("scan.png")).await.error(401);
    closed.finish().await;
    let slow = self::world(|config| config.extraction.wall_seconds = 0).await;
    let answer = send(&slow.anonymous(), SEARCHABLE, "scan.png", &sample("scan.png")).await;
    // Only what is possible here is advised.
    let detail = answer.error(504);
    assert!(detail.contains("split the document") && !detail.contains("recognition"), "{detail}");
    assert!(
        send(&slow.anonymous(), EXTRACT, "scan.png", &sample("scan.png"))
            .await
            .error(504)
            .contains("ocr_engine=none")
    );
    slow.finish().await;
}
