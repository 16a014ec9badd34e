//! Words with their places, and pictures of the pages that they refer to.

use chrono::TimeDelta;
use serde_json::Value;

use super::{EXTRACT, jobs::until_status, sample, send, text, world, world_for_weeks};
use crate::harness::{Answer, Client, eventually, seconds};

const SUBMIT: &str = "/api/v1/jobs?output_format=json&words=true&keep_input=true&language=eng";

/// The words of the blocks of a document.
fn words(document: &Value) -> Vec<&Value> {
    document["blocks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|block| block["words"].as_array())
        .flatten()
        .collect()
}

async fn submitted(client: &Client, name: &str) -> (String, Value) {
    let answer = send(client, SUBMIT, name, &sample(name)).await.expect(202);
    let id = answer["job_id"].as_str().unwrap().to_owned();
    let job = until_status(client, &id, "completed").await;
    (id, serde_json::from_str(job["result_content"].as_str().unwrap()).unwrap())
}

async fn page(client: &Client, id: &str, rest: &str) -> Answer {
    client.get(&format!("/api/v1/jobs/{id}/pages/{rest}")).await
}

/// Width and height of a PNG, from its head.
fn size(png: &[u8]) -> (u32, u32) {
    assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
    (number(16), number(20))
}

#[tokio::test]
async fn each_word_of_a_page_has_its_place() {
    let world = world(|_| {}).await;
    let path = format!("{EXTRACT}?output_format=json&words=true&language=eng");
    let read = async |name: &str| -> Value {
        let answer = send(&world.admin, &path, name, &sample(name)).await.expect(200);
        serde_json::from_str(answer["content"].as_str().unwrap()).unwrap()
    };
    for (name, is_recognised) in [("report.pdf", false), ("scan.pdf", true), ("turned.pdf", true)] {
        let document = read(name).await;
        let (pages, words) = (document["pages"].as_array().unwrap(), words(&document));
        assert!(words.len() > 20, "{name}: {} words", words.len());
        let mut held = 0;
        for word in &words {
            let confidence = &word["confidence"];
            assert_eq!(confidence.is_null(), !is_recognised, "{name}: {word}");
            assert!(confidence.as_f64().unwrap_or(1.0) <= 1.0);
            for place in word["places"].as_array().unwrap() {
                let page = &pages[place["page"].as_u64().unwrap() as usize - 1];
                let bbox: Vec<_> =
                    place["bbox"].as_array().unwrap().iter().map(|side| side.as_f64().unwrap()).collect();
                assert!(bbox[0] < bbox[2] && bbox[1] < bbox[3], "{name}: {word}");
                assert!(bbox[2] <= page["width"].as_f64().unwrap() + 1.0, "{name}: {word}");
            }
            held +=
                usize::from(document["content"].as_str().unwrap().contains(word["text"].as_str().unwrap()));
        }
        assert!(held * 10 >= words.len() * 9, "{name}: {held} of {} words are in the text", words.len());
    }
    assert_eq!(read("turned.pdf").await["pages"][0]["rotation"].as_u64().unwrap() % 90, 0);
    let without: Value = serde_json::from_str(&text(&world.admin, "report.pdf", "json").await).unwrap();
    assert!(words(&without).is_empty());
    send(&world.admin, &format!("{EXTRACT}?words=perhaps"), "a.txt", b"a").await.error(422);
    world.finish().await;
}

#[tokio::test]
async fn pages_are_looked_at_while_the_document_is_kept() {
    let (world, clock) = world_for_weeks().await;
    let client = &world.admin;
    let (id, document) = submitted(client, "report.pdf").await;
    let drawn = page(client, &id, "1?width=600").await;
    assert_eq!((drawn.status, drawn.header("content-type")), (200, Some("image/png")));
    let shape = |side: &str| document["pages"][0][side].as_f64().unwrap();
    let (width, height) = size(&drawn.body);
    assert_eq!(width, 600);
    assert!((f64::from(height) - 600.0 * shape("height") / shape("width")).abs() <= 1.0);
    assert_eq!(size(&page(client, &id, "1").await.body).0, 1240);
    for (name, pages) in [("frames.tiff", 2), ("camera.jpg", 1), ("kinds.tiff", 1)] {
        let (picture, _) = submitted(client, name).await;
        for number in 1..=pages {
            let drawn = page(client, &picture, &format!("{number}?width=300")).await;
            assert_eq!(drawn.status, 200, "{name}: {}", drawn.text());
            assert!(size(&drawn.body).0 <= 300);
        }
    }
    for (wrong, status) in [
        ("0", 404),
        ("2", 404),
        ("x", 404),
        ("18446744073709551616", 404),
        ("1?width=15", 422),
        ("1?width=2481", 422),
    ] {
        page(client, &id, wrong).await.error(status);
    }
    let (letter, _) = submitted(client, "letter.docx").await;
    page(client, &letter, "1").await.error(404);
    // It is private.
    let other = world.user("operator", "operator").await;
    page(&other, &id, "1").await.error(404);
    page(&world.anonymous(), &id, "1").await.error(404);
    let brief = send(client, "/api/v1/jobs", "a.pdf", &sample("report.pdf")).await.expect(202);
    let brief = brief["job_id"].as_str().unwrap().to_owned();
    until_status(client, &brief, "completed").await;
    eventually(seconds(10), async || page(client, &brief, "1").await.status == 404).await;
    assert!(page(client, &brief, "1").await.error(404).contains("keep_input=true"));
    clock.advance(TimeDelta::hours(71));
    assert_eq!(page(client, &id, "1").await.status, 200);
    clock.advance(TimeDelta::hours(2));
    eventually(seconds(10), async || page(client, &id, "1").await.status == 404).await;
    send(client, "/api/v1/jobs?keep_input=perhaps", "a.txt", b"a").await.error(422);
    let job = format!("/api/v1/jobs/{id}");
    eventually(seconds(10), async || client.get(&job).await.expect(200)["result_content"].is_null()).await;
    world.finish().await;
}
