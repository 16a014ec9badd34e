//! Texts that are kept and searched.

use chrono::{DateTime, TimeDelta};
use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_projections::{
    extraction::{ExtractionProjection, documents::unindexed},
    rebuild,
};
use signalbox_workers::{DocumentIndex, Worker};
use sqlx::Executor as _;

use super::{EXTRACT, document, form, jobs::until_status, sample, send, send_form, world, world_for_weeks};
use crate::harness::{Client, World, encode, eventually, seconds, sha256};

pub const DOCUMENTS: &str = "/api/v1/documents";

/// Submits a document whose text is kept; returns its id once it can be found.
async fn keep(client: &Client, name: &str, bytes: &[u8]) -> String {
    let path = format!("{DOCUMENTS}?keep=true");
    let id = send(client, &path, name, bytes).await.expect(202)["job_id"].as_str().unwrap().to_owned();
    let job = until_status(client, &id, "completed").await;
    assert_eq!((&job["kept"], &job["result_expires_at"]), (&json!(true), &json!(null)));
    let is_searchable = |list: &Value| {
        list["data"].as_array().unwrap().iter().any(|one| one["id"] == id && one["searchable"] == true)
    };
    client.until(DOCUMENTS.to_owned(), is_searchable).await;
    id
}

async fn search(client: &Client, query: &str) -> Value {
    client.get(&format!("{DOCUMENTS}?q={}", encode(query))).await.expect(200)
}

async fn names(client: &Client, query: &str) -> Vec<String> {
    let found = search(client, query).await;
    let data = found["data"].as_array().unwrap();
    assert_eq!(found["total"], data.len());
    data.iter().map(|document| document["filename"].as_str().unwrap().to_owned()).collect()
}

fn hit(found: &Value) -> &Value {
    &found["data"][0]["hits"][0]
}

fn marked(hit: &Value) -> Vec<&str> {
    let parts = hit["parts"].as_array().unwrap().iter();
    parts.filter(|part| part["matched"] == true).map(|part| part["text"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_kept_text_is_found_with_page_and_box_of_the_hit() {
    let world = world(|_| {}).await;
    let client = world.user("operator", "operator").await;
    let (report, scan) = (sample("report.pdf"), sample("scan.pdf"));
    let id = keep(&client, "report.pdf", &report).await;
    for (query, word) in
        [("Stellkraft", "Stellkraft"), ("stellKRAFT", "Stellkraft"), ("\"Keine Mängel\"", "Keine")]
    {
        let found = search(&client, query).await;
        assert_eq!((&found["total"], &found["data"][0]["id"]), (&json!(1), &json!(id)), "{query}: {found}");
        let hit = hit(&found);
        assert_eq!(hit["page"], 1);
        assert_eq!(marked(hit)[0], word);
        let parts: String =
            hit["parts"].as_array().unwrap().iter().map(|part| part["text"].as_str().unwrap()).collect();
        assert_eq!(hit["snippet"], parts);
        // The box is that of the block that has the word.
        let blocks = document(&client, "report.pdf", &report).await["blocks"].clone();
        let block = blocks.as_array().unwrap().iter().find(|block| block["bbox"] == hit["bbox"]).unwrap();
        assert!(block["content"].as_str().unwrap().contains(word), "{query}: {block}");
    }
    // Words in different blocks of a page belong together; a recognised page has places too.
    assert_eq!(names(&client, "Stellkraft Herbst -Frost").await, ["report.pdf"]);
    assert_eq!(names(&client, "Stellkraft Frost").await, Vec::<String>::new());
    keep(&client, "scan.pdf", &scan).await;
    let blocks = document(&client, "scan.pdf", &scan).await["blocks"].clone();
    let text = blocks
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["content"].as_str().unwrap())
        .collect::<Vec<_>>()
        .join(" ");
    let word = text.split(|letter: char| !letter.is_alphabetic()).max_by_key(|word| word.len()).unwrap();
    let found = client.get(&format!("{DOCUMENTS}?filename=SCAN&q={}", encode(word))).await.expect(200);
    assert!(hit(&found)["bbox"].is_array() && hit(&found)["page"] == 1, "{word}: {found}");
    // English and German alike: exact words.
    keep(&client, "english.txt", b"The valves are closed in autumn.").await;
    assert_eq!(names(&client, "VALVES autumn").await, ["english.txt"]);
    assert_eq!(names(&client, "valve").await, Vec::<String>::new());
    let found = search(&client, "valves").await;
    assert_eq!((&hit(&found)["page"], &hit(&found)["bbox"]), (&json!(null), &json!(null)));
    world.finish().await;
}

#[tokio::test]
async fn words_are_found_in_any_form_and_between_any_signs() {
    let world = world(|_| {}).await;
    let client = &world.admin;
    let text = "See http://plant.example.org/manual?x=1 or /usr/bin/tool. If a<b, call <service desk>: R&D. \
                Die Schlie\u{DF}kraft der U\u{308}berpru\u{308}fung ist \u{FB01}nal AB-1234/5.";
    keep(client, "signs.txt", text.as_bytes()).await;
    for (query, words) in [
        ("http://plant.example.org/manual?x=1", vec!["http", "plant"]),
        ("tool", vec!["tool"]),
        ("\"service desk\"", vec!["service", "desk"]),
        ("b", vec!["b"]),
        ("SCHLIESSKRAFT", vec!["Schlie\u{DF}kraft"]),
        ("\u{DC}berpr\u{FC}fung", vec!["U\u{308}berpru\u{308}fung"]),
        ("final", vec!["\u{FB01}nal"]),
        ("1234", vec!["1234"]),
    ] {
        let found = search(client, query).await;
        assert_eq!(found["total"], 1, "{query}");
        assert_eq!(marked(hit(&found))[..words.len()], words, "{query}");
    }
    // Signs between words make them a phrase.
    assert_eq!(names(client, "desk/service").await, Vec::<String>::new());
    world.finish().await;
}

#[tokio::test]
async fn documents_are_seen_by_their_owner_and_admins() {
    let world = world(|_| {}).await;
    let (owner, other) = (world.user("owner", "viewer").await, world.user("other", "operator").await);
    let id = keep(&owner, "a.txt", b"Weichenheizung").await;
    keep(&other, "b.txt", b"Weichenantrieb").await;
    // A text that is not kept is not found.
    let path = format!("{DOCUMENTS}?keep=false");
    let job = send(&owner, &path, "c.txt", b"Weichenheizung, nur kurz").await.expect(202);
    until_status(&owner, job["job_id"].as_str().unwrap(), "completed").await;
    assert_eq!(names(&owner, "Weichenheizung").await, ["a.txt"]);
    assert_eq!(names(&other, "Weichenheizung").await, Vec::<String>::new());
    assert_eq!(names(&world.admin, "Weichenheizung or Weichenantrieb").await.len(), 2);
    world.admin.get(&format!("/api/v1/jobs/{id}/result")).await.expect_bytes(b"Weichenheizung");
    other.get(&format!("/api/v1/jobs/{id}/result")).await.error(404);
    world.admin.get(&format!("/api/v1/jobs/{}", job["job_id"].as_str().unwrap())).await.error(404);
    let listed = world.admin.get(&format!("{DOCUMENTS}?page_size=1&page=2")).await.expect(200);
    assert_eq!((&listed["total"], &listed["data"][0]["id"]), (&json!(2), &json!(id)));
    assert_eq!(listed["data"][0]["hits"], json!([]));
    let foreign = format!("{DOCUMENTS}/{id}");
    let unknown = format!("{DOCUMENTS}/018f0000-0000-7000-8000-000000000000");
    assert_eq!(other.delete(&foreign).await.error(404), other.delete(&unknown).await.error(404));
    owner.delete(&format!("{DOCUMENTS}/{}", job["job_id"].as_str().unwrap())).await.error(404);
    // Admins delete the text there, not the job of somebody else.
    world.admin.delete(&format!("/api/v1/jobs/{id}?remove=true")).await.error(404);
    assert_eq!(names(&owner, "Weichenheizung").await, ["a.txt"]);
    world.admin.delete(&foreign).await.expect(200);
    assert_eq!(names(&owner, "Weichenheizung").await, Vec::<String>::new());
    world.finish().await;
}

#[tokio::test]
async fn texts_are_kept_for_callers_with_a_login_alone() {
    let world = world(|config| config.extraction.kept_mb_each = 0).await;
    let stranger = world.anonymous();
    for path in ["/api/v1/jobs?keep=true", "/api/v1/documents?keep=1", "/api/v1/jobs/batch?keep=true"] {
        let detail = send(&stranger, path, "a.txt", b"text").await.error(401);
        assert!(detail.contains("keep=true") && detail.contains("login"), "{detail}");
    }
    let form = [("file", Some("a.txt"), &b"text"[..]), ("keep", None, b"true")];
    send_form(&stranger, "/api/v1/jobs", &form).await.error(401);
    stranger.get(DOCUMENTS).await.error(401);
    stranger.delete(&format!("{DOCUMENTS}/018f0000-0000-7000-8000-000000000000")).await.error(401);
    send(&world.admin, "/api/v1/jobs?keep=perhaps", "a.txt", b"text").await.error(422);
    let full = send(&world.admin, "/api/v1/jobs?keep=true", "a.txt", b"text").await.error(409);
    assert!(full.contains("0 MiB"), "{full}");
    send(&world.admin, "/api/v1/jobs", "a.txt", b"text").await.expect(202);
    // A quick call leaves nothing behind.
    for path in [
        "/api/v1/documents/sync?keep=true",
        "/api/v1/extract?keep=1",
        "/api/v1/extract/searchable-pdf?keep=on",
    ] {
        let detail = send(&world.admin, path, "a.txt", b"text").await.error(422);
        assert!(detail.contains("POST /api/v1/documents"), "{detail}");
    }
    world.finish().await;
}

#[tokio::test]
async fn jobs_that_have_not_ended_count_towards_what_may_be_kept() {
    let world = world(|config| config.extraction.kept_mb_each = 1).await;
    let text = "word ".repeat(300_000);
    let path = format!("{DOCUMENTS}?keep=true");
    // Nothing is kept yet.
    let batch = [("files", Some("a.txt"), text.as_bytes()); 3];
    let refused = send_form(&world.admin, "/api/v1/jobs/batch?keep=true", &batch).await.error(409);
    assert!(refused.contains("take 0 MiB of 1 MiB") && refused.contains("fewer at once"), "{refused}");
    let id = send(&world.admin, &path, "a.txt", text.as_bytes()).await.expect(202);
    let full = send(&world.admin, &path, "b.txt", b"text").await.error(409);
    assert!(full.contains("of 1 MiB"), "{full}");
    let document = format!("{DOCUMENTS}/{}", id["job_id"].as_str().unwrap());
    // Refused before its end, deleted after it.
    let status = world.admin.delete(&document).await.status;
    assert!([200, 409].contains(&status), "{status}");
    world.finish().await;
}

/// The list shows a job only after it was taken in.
#[tokio::test]
async fn jobs_that_are_submitted_at_the_same_moment_stay_within_what_may_be_kept() {
    let world = world(|config| config.extraction.kept_mb_each = 1).await;
    let path = format!("{DOCUMENTS}?keep=true");
    // With 257 kB each and more, the limit is reached by five of them.
    let texts: Vec<String> = (0..12).map(|number| format!("word{number} ").repeat(300_000 / 7)).collect();
    let answers =
        join_all(texts.iter().map(|text| send(&world.admin, &path, "a.txt", text.as_bytes()))).await;
    let taken = answers.iter().filter(|answer| answer.status == 202).count();
    assert!((1..=5).contains(&taken), "{taken} documents were taken in");
    let refused = answers.iter().filter(|answer| answer.status == 409).count();
    assert_eq!(taken + refused, answers.len());
    world.finish().await;
}

/// Some were taken in when one is refused: they count, and the others do not.
#[tokio::test]
async fn jobs_of_a_batch_that_fails_count_if_they_were_taken_in() {
    let world = world(|_| {}).await;
    let pool = &world.servers.pool;
    pool.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             RAISE EXCEPTION 'refused' USING ERRCODE = '22023'; END $$;
         CREATE TRIGGER refused BEFORE INSERT ON events FOR EACH ROW
             WHEN (NEW.payload->>'filename' = 'refused.txt') EXECUTE FUNCTION refuse()",
    )
    .await
    .unwrap();
    let names: Vec<String> = (0..40).map(|number| format!("{number}.txt")).collect();
    let mut files: Vec<_> =
        names.iter().map(|name| ("files", Some(name.as_str()), name.as_bytes())).collect();
    files[20] = ("files", Some("refused.txt"), b"refused");
    // Sent past the check of answers, because the description names no such refusal.
    let request = world.admin.request(Method::POST, "/api/v1/jobs/batch?keep=true");
    let request = request.header("content-type", "multipart/form-data; boundary=b").body(form(&files));
    assert_eq!(request.send().await.unwrap().status(), 422);
    let noted = "SELECT ARRAY(SELECT job_id::text FROM ops.keeping_jobs ORDER BY 1)
                      = ARRAY(SELECT aggregate_id FROM events WHERE event_type = 'extraction_submitted' ORDER BY 1)";
    eventually(seconds(10), async || sqlx::query_scalar(noted).fetch_one(pool).await.unwrap()).await;
    let taken_in = world.count_events("extraction_submitted").await;
    assert!((20..40).contains(&taken_in), "{taken_in}");
    pool.execute("DROP TRIGGER refused ON events").await.unwrap();
    eventually(seconds(60), async || world.count_events("extraction_completed").await == taken_in).await;
    world.finish().await;
}

#[tokio::test]
async fn the_job_of_a_kept_text_says_where_that_is_deleted() {
    let world = world(|_| {}).await;
    let id = keep(&world.admin, "a.txt", b"Weichenheizung").await;
    let job = world.admin.delete(&format!("/api/v1/jobs/{id}")).await.expect(200);
    let document = job["document"].as_str().unwrap();
    assert_eq!((&job["status"], document), (&json!("completed"), format!("{DOCUMENTS}/{id}").as_str()));
    world.admin.delete(document).await.expect(200);
    let job = world.admin.delete(&format!("/api/v1/jobs/{id}")).await.expect(200);
    assert_eq!((&job["kept"], &job["document"]), (&json!(false), &json!(null)));
    world.finish().await;
}

#[tokio::test]
async fn odd_queries_find_nothing_or_are_refused() {
    let world = world(|_| {}).await;
    let client = &world.admin;
    keep(client, "a.txt", b"one two three").await;
    for query in [
        "&|!()",
        "\"",
        "\"\"",
        "-",
        "- - -",
        "or",
        "or or",
        "-\"",
        "<->",
        ":*",
        "'",
        "\\",
        "...",
        "\u{E000}\u{E001}",
        "\u{FFFF}",
    ] {
        assert_eq!(names(client, query).await, Vec::<String>::new(), "{query}");
    }
    for query in ["", "   "] {
        assert_eq!(names(client, query).await, ["a.txt"], "no words are no search");
    }
    for query in ["one -four", "ONE & two", "\"two three\"", "four or one"] {
        assert_eq!(names(client, query).await, ["a.txt"], "{query}");
    }
    let long =
        ["a".repeat(1000), "ö".repeat(1000), "\"a ".repeat(333), "a or ".repeat(200), "-".repeat(1000)];
    for query in long {
        assert_eq!(names(client, &query).await, Vec::<String>::new());
    }
    assert!(client.get(&format!("{DOCUMENTS}?q={}", "a".repeat(10_000))).await.error(422).contains("1000"));
    assert_eq!(names(client, &"-a ".repeat(333)).await, ["a.txt"]);
    client.get(&format!("{DOCUMENTS}?q=a%00b")).await.error(422);
    let odd = client.get(&format!("{DOCUMENTS}?q=%ff%fe")).await;
    assert!([200, 422].contains(&odd.status), "{}", odd.status);
    client.get(&format!("{DOCUMENTS}?q=one&sort=rank")).await.error(422);
    client.get(&format!("{DOCUMENTS}?q=one&page=1000000&page_size=100")).await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn long_texts_are_found_whole() {
    let world = world(|_| {}).await;
    let client = &world.admin;
    // More different words than one index entry of PostgreSQL takes, and a word longer than any.
    let mut text = "x".repeat(5000);
    for number in 0..300_000 {
        text.push_str(&format!(" wort{number}"));
    }
    keep(client, "long.txt", text.as_bytes()).await;
    for query in ["wort0", "wort150000 wort150001", "wort299999"] {
        let found = search(client, query).await;
        assert_eq!(found["total"], 1, "{query}");
        let hit = hit(&found);
        assert!(marked(hit).contains(&query.split(' ').next().unwrap()), "{hit}");
        assert!(hit["snippet"].as_str().unwrap().chars().count() < 600, "{hit}");
    }
    world.finish().await;
}

#[tokio::test]
async fn kept_texts_outlive_results_and_a_rebuild_of_the_list() {
    let (world, clock) = world_for_weeks().await;
    let client = &world.admin;
    let id = keep(client, "a.txt", b"Weichenheizung").await;
    let short = send(client, "/api/v1/jobs", "b.txt", b"kurz").await.expect(202);
    let short = short["job_id"].as_str().unwrap();
    until_status(client, short, "completed").await;
    clock.advance(TimeDelta::hours(200));
    client.until(format!("/api/v1/jobs/{short}"), |job| job["result_expires_at"].is_null()).await;
    let before = search(client, "Weichenheizung").await;
    assert_eq!(before["data"][0]["id"], id);
    client.get(&format!("/api/v1/jobs/{id}/result")).await.expect_bytes(b"Weichenheizung");
    let report = rebuild::<ExtractionProjection>(&world.servers.pool).await.unwrap();
    assert_eq!((report.differences, report.set_aside.len()), (0, 0));
    assert_eq!(search(client, "Weichenheizung").await, before);
    // An index that was lost is written again from the texts, and one that is left over is removed.
    for table in ["ops.indexed_documents", "ops.document_sections"] {
        sqlx::query(&format!("DELETE FROM {table}")).execute(&world.servers.pool).await.unwrap();
    }
    let stray = "INSERT INTO ops.document_sections (job_id, number, texts, boxes, words)
                 VALUES (gen_random_uuid(), 0, '{}', '[]', '')";
    sqlx::query(stray).execute(&world.servers.pool).await.unwrap();
    step_new_index(&world).await;
    assert_eq!(search(client, "Weichenheizung").await, before);
    assert_eq!(count(&world, "ops.document_sections").await, 1);
    world.finish().await;
}

/// As a process does that has just started, or has just got the lease.
async fn step_new_index(world: &World) {
    let parts = world.worker_parts().await;
    DocumentIndex::new(parts.store()).step(&parts.context).await.unwrap();
}

/// In a rolling upgrade, a process of the release before may hold the worker's lease: it knows no form, and does not fold.
#[tokio::test]
async fn words_that_an_earlier_release_has_indexed_are_indexed_again() {
    let world = world(|_| {}).await;
    let client = &world.admin;
    let text = "Die Stra\u{df}e zum Mu\u{308}hlrad";
    let id = keep(client, "a.txt", text.as_bytes()).await;
    let is_found = async || search(client, "strasse m\u{fc}hlrad").await["total"] == 1;
    assert!(is_found().await);
    let pool = &world.servers.pool;
    let mut before = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    for statement in [
        "DELETE FROM ops.indexed_documents",
        "UPDATE ops.document_sections SET words = to_tsvector('simple', array_to_string(texts, E'\\n'))",
        "INSERT INTO ops.indexed_documents (job_id, sections) SELECT job_id, count(*) FROM ops.document_sections GROUP BY 1",
    ] {
        sqlx::query(statement).execute(&mut *before).await.unwrap();
    }
    before.commit().await.unwrap();
    let listed = client.get(DOCUMENTS).await.expect(200)["data"][0].clone();
    assert_eq!((&listed["id"], &listed["searchable"]), (&json!(id), &json!(true)));
    step_new_index(&world).await;
    assert!(is_found().await);
    let left = unindexed(pool, DateTime::UNIX_EPOCH, &[], 10).await.unwrap();
    assert!(left.is_empty(), "not again and again: {left:?}");
    world.finish().await;
}

#[tokio::test]
async fn a_deleted_document_leaves_no_text() {
    let world = world(|config| config.extraction.input_hours = 10).await;
    let client = &world.admin;
    let id = keep(client, "a.txt", b"Weichenheizung").await;
    // The same text, read without being kept: its own result stays until it expires.
    let other = send(client, "/api/v1/jobs", "a.txt", b"Weichenheizung").await.expect(202);
    let other = other["job_id"].as_str().unwrap().to_owned();
    until_status(client, &other, "completed").await;
    let path = format!("{DOCUMENTS}/{id}");
    let version = client.get(&format!("/api/v1/jobs/{id}")).await;
    let stale = client.request(reqwest::Method::DELETE, &path).header("if-match", "\"1\"");
    client.send(stale).await.error(412);
    let fresh =
        client.request(reqwest::Method::DELETE, &path).header("if-match", version.header("etag").unwrap());
    client.send(fresh).await.expect(200);
    client.delete(&path).await.error(404);
    assert_eq!(search(client, "Weichenheizung").await["total"], 0);
    let job = client.get(&format!("/api/v1/jobs/{id}")).await.expect(200);
    assert_eq!(
        (&job["status"], &job["kept"], &job["result_content"]),
        (&json!("completed"), &json!(false), &json!(null))
    );
    client.get(&format!("/api/v1/jobs/{id}/result")).await.error(404);
    client.until(format!("/api/v1/jobs/{id}"), |job| job["input_kept"] == false).await;
    eventually(seconds(10), async || world.count_events("extraction_result_expired").await == 1).await;
    assert_eq!(count(&world, "ops.document_sections").await, 0);
    assert_eq!(count(&world, "ops.indexed_documents").await, 0);
    // The files of the other job stay: its document, its result, and what is remembered for it.
    let files = world.staged_files().await;
    let kept = |name: &[u8]| files.iter().filter(|file| **file == sha256(name)).count();
    assert_eq!((kept(b"text"), kept(b"input")), (2, 1));
    assert_eq!(count(&world, "ops.extraction_cache").await, 1);
    client.get(&format!("/api/v1/jobs/{other}/result")).await.expect_bytes(b"Weichenheizung");
    let quick = send(client, EXTRACT, "a.txt", b"Weichenheizung").await.expect(200);
    assert_eq!(quick["cached"], true);
    let words: i64 =
        sqlx::query_scalar("SELECT count(*) FROM events WHERE payload::text LIKE '%Weichenheizung%'")
            .fetch_one(&world.servers.pool)
            .await
            .unwrap();
    assert_eq!(words, 0, "no word of a document is in the log");
    world.finish().await;
}

async fn count(world: &World, table: &str) -> i64 {
    let count = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(&count).fetch_one(&world.servers.pool).await.unwrap()
}
