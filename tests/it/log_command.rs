//! `signalbox log` beside a running service.

use std::{collections::BTreeMap, path::Path};

use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use sqlx::Executor;
use tempfile::TempDir;

use crate::{
    harness::{Client, World, eventually, eventually_some, seconds, signalbox},
    routes,
};

async fn make_event(world: &World, name: &str) -> String {
    let event = json!({"name": name, "type": "sensor"});
    let made = world.admin.post("/api/v1/events", event).await.expect(201);
    made["public_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_newest_events_are_printed() {
    let world = World::start().await;
    make_event(&world, "first").await;
    let id = make_event(&world, "second").await;
    let tail =
        signalbox(&world.config, &["log", "tail", "-n", "2", "--stream-type", "channel", "--json"]).await;
    let lines = tail.json_lines();
    let shown = world.admin.get("/api/v1/log?stream_type=channel&order=oldest").await.expect(200);
    assert_eq!(Value::Array(lines), shown["data"]);
    let plain =
        signalbox(&world.config, &["log", "tail", "-n", "1", "--event-type", "channel_created"]).await.well();
    assert!(plain.contains(&format!("channel_created            channel/{id}  v1  user:")), "{plain}");
    let position = shown["data"][1]["position"].to_string();
    let one = signalbox(&world.config, &["log", "show", &position, "--json"]).await.json_lines();
    assert_eq!(one[0], shown["data"][1]);
    let stream =
        signalbox(&world.config, &["log", "show", "channel", &id, "--at", &position, "--json"]).await;
    assert_eq!(stream.json_lines()[0]["version"], 1);
    for (arguments, complaint) in [
        (["show", "999999", "--json"], "there is no event at position 999999"),
        (["show", "channel", &world.clock.new_id().to_string()], "there was no stream"),
        (["show", "nonsense", "--json"], "is not a position"),
    ] {
        let said = signalbox(&world.config, &[&["log"], arguments.as_slice()].concat()).await;
        assert_eq!(said.code, Some(1));
        assert!(said.errors.contains(complaint), "{}", said.errors);
    }
    world.finish().await;
}

#[tokio::test]
async fn a_tampered_log_changes_the_exit_status() {
    let world = World::start().await;
    make_event(&world, "first").await;
    let folder = TempDir::new().unwrap();
    let (head, key) = (folder.path().join("head.json"), folder.path().join("key.pem"));
    let private_key = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIFaT0ESf+5bZeIloodUwywwKBxhFAPMUhaB4varEtBeQ
-----END PRIVATE KEY-----
";
    std::fs::write(&key, private_key).unwrap();
    let key = key.to_str().unwrap();
    let signed = eventually_some(seconds(20), async || {
        let said = signalbox(&world.config, &["log", "head", "--sign", key]).await;
        (said.code == Some(0)).then_some(said.out)
    })
    .await;
    std::fs::write(&head, &signed).unwrap();
    let published: Value = serde_json::from_str(&signed).unwrap();
    assert!(published["signature"].is_string());
    let verify = ["log", "verify", "--json", "--head", head.to_str().unwrap()];
    let found = signalbox(&world.config, &verify).await.json_lines();
    assert_eq!(found[0]["fault"], Value::Null);
    assert!(
        signalbox(&world.config, &["log", "verify"]).await.well().contains("The log of events is as it was")
    );
    let tampering = "SET session_replication_role = replica;
        UPDATE events SET payload = '{}' WHERE position = 1; RESET session_replication_role";
    world.servers.pool.execute(tampering).await.unwrap();
    let said = signalbox(&world.config, &verify).await;
    assert_eq!(said.code, Some(3), "{said:?}");
    let found: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(found["fault"], json!({"fault": "altered", "position": 1}));
    let said = signalbox(&world.config, &["log", "verify"]).await;
    assert!(said.out.contains("not as it was: event 1 was altered"), "{said:?}");
    // An invalid key makes the check fail.
    let wrong = [verify.as_slice(), &["--public-key", key]].concat();
    assert_eq!(signalbox(&world.config, &wrong).await.code, Some(1));
    world.finish().await;
}

/// The answers of `client` that are the same for the same system in another place.
async fn answers(client: &Client, subjects: &routes::Subjects) -> BTreeMap<String, Value> {
    // Answers that depend on a process or its time, and files.
    const OTHERS: [&str; 9] = [
        "/health",
        "/livez",
        "/readyz",
        "/info",
        "/log/chain",
        "/log/stream",
        "/manifest",
        "/download",
        "/poll",
    ];
    let mut found = BTreeMap::new();
    for route in routes::all() {
        if route.method != "GET" || OTHERS.iter().any(|end| route.template.ends_with(end)) {
            continue;
        }
        let answer = client.get(&route.path(subjects)).await;
        let mut body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        forget_use(&mut body);
        found.insert(
            route.template.clone(),
            json!({"status": answer.status, "etag": answer.header("etag"), "body": body}),
        );
    }
    found
}

/// When a token was last used, and ids of requests: asking changes them.
fn forget_use(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["last_used", "last_used_at", "last_used_on", "request_id"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(forget_use);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_use),
        _ => {}
    }
}

#[tokio::test]
async fn an_imported_log_answers_every_get_alike() {
    let world = World::start().await;
    let subjects = routes::subjects(&world).await;
    let values: Vec<_> = (0..50).map(|n| json!({"value": n, "event_public_id": subjects.event})).collect();
    world.admin.post("/api/v1/datapoints/batch", json!({"datapoints": values})).await.expect(201);
    let line = async |world: &World| {
        let request = world.admin.request(Method::POST, "/api/v2/write").body("m v=1 1000");
        assert_eq!(world.admin.send(request).await.status, 204);
    };
    line(&world).await;
    let total =
        async |world: &World| world.admin.get("/api/v1/datapoints").await.expect(200)["total"].clone();
    let recorded = total(&world).await;
    let token = world.admin.post("/api/v1/tokens", json!({"name": "traveller"})).await.expect(201);
    let token = token["token"].as_str().unwrap();
    let (mut before, mut again) = (answers(&world.admin.with_token(token), &subjects).await, BTreeMap::new());
    eventually(seconds(30), async || {
        (again, before) = (before.clone(), answers(&world.admin.with_token(token), &subjects).await);
        again == before
    })
    .await;
    assert!(before.len() >= 45, "{}", before.len());
    let folder = TempDir::new().unwrap();
    let archive = folder.path().join("archive.ndjson");
    let path = archive.to_str().unwrap();
    let exported = signalbox(&world.config, &["log", "export", path, "--json"]).await;
    assert_eq!(exported.code, Some(0), "{exported:?}");
    assert_eq!(
        signalbox(&world.config, &["log", "export", path]).await.code,
        Some(1),
        "it overwrites nothing"
    );
    let full = signalbox(&world.config, &["log", "import", path]).await;
    assert!(full.code == Some(1) && full.errors.contains("the system is not empty"), "{full:?}");
    let head = folder.path().join("head.json");
    std::fs::write(&head, signalbox(&world.config, &["log", "head"]).await.well()).unwrap();
    let queued = world.count_events("deliveries_queued").await;
    cut_archives_leave_nothing(&archive).await;
    let other = World::of_archive(&archive, token).await;
    let mut after = BTreeMap::new();
    for _ in 0..300 {
        after = answers(&other.admin, &subjects).await;
        if after == before {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    for (template, answer) in &before {
        assert_eq!(&after[template], answer, "{template}");
    }
    // It was the same log, and nothing of what was done is done again.
    let verify = ["log", "verify", "--head", head.to_str().unwrap()];
    signalbox(&other.config, &verify).await.well();
    assert_eq!(other.count_events("deliveries_queued").await, queued);
    // It continues where the first one was, and knows the values that senders repeat.
    line(&other).await;
    assert_eq!(total(&other).await, recorded);
    let new =
        other.admin.post("/api/v1/events", json!({"name": "later", "type": "sensor"})).await.expect(201);
    let point = json!({"value": 1, "event_public_id": new["public_id"]});
    other.admin.post("/api/v1/datapoints", point).await.expect(201);
    let agent = other.agent("later").await;
    assert!(agent.id > subjects.agent.id);
    other.admin.post("/api/v1/events", json!({"name": "subject", "type": "sensor"})).await.error(409);
    world.finish_with_mail().await;
    other.finish_with_mail().await;
}

/// An archive that was made before workers removed what was deleted: the next service does.
#[tokio::test]
async fn deleted_things_stay_deleted_in_a_carried_log() {
    let world = World::without_workers(Clock::system(), |config| config.extraction.parsers = 1).await;
    let admin = &world.admin;
    let (gone, kept) = (make_event(&world, "gone").await, make_event(&world, "kept").await);
    let values: Vec<_> = [&gone, &kept]
        .iter()
        .flat_map(|event| vec![json!({"value": 1, "event_public_id": event}); 5])
        .collect();
    admin.post("/api/v1/datapoints/batch", json!({"datapoints": values})).await.expect(201);
    let (from, to) = (world.agent("from").await, world.agent("to").await);
    let transfer = format!("/api/transfers/{}", world.transfer(&from, &to, "/a", "/b").await);
    admin.post(&format!("{transfer}/cancel"), json!({})).await.expect(200);
    let form = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\r\nWeichenheizung\r\n--b--\r\n";
    let request = admin.request(Method::POST, "/api/v1/jobs").body(form);
    let request = request.header("content-type", "multipart/form-data; boundary=b");
    let job = admin.send(request).await.expect(202);
    let job = format!("/api/v1/jobs/{}", job["job_id"].as_str().unwrap());
    admin.delete(&job).await.expect(200);
    let before = world.position().await;
    assert_eq!(admin.delete(&transfer).await.status, 204);
    assert_eq!(admin.delete(&format!("{job}?remove=true")).await.status, 204);
    admin.delete(&format!("/api/v1/events/{gone}?values=true")).await.expect(200);
    let token = admin.post("/api/v1/tokens", json!({"name": "traveller"})).await.expect(201);
    let folder = TempDir::new().unwrap();
    let archive = folder.path().join("archive.ndjson");
    signalbox(&world.config, &["log", "export", archive.to_str().unwrap()]).await.well();

    let other = World::of_archive(&archive, token["token"].as_str().unwrap()).await;
    let (admin, total) =
        (&other.admin, async |list: &str| other.admin.get(list).await.expect(200)["total"].clone());
    for path in [&transfer, &job] {
        admin.get(path).await.error(404);
        assert_eq!(admin.get(&format!("{path}?at={before}")).await.expect(200)["status"], "cancelled");
    }
    assert_eq!(admin.get("/api/transfers").await.expect(200), json!([]));
    assert_eq!(total("/api/v1/jobs").await, 0);
    eventually(seconds(60), async || total("/api/v1/datapoints").await == 5).await;
    eventually(seconds(60), async || other.count_events("staged_bytes_deleted").await == 1).await;
    eventually(seconds(30), async || signalbox(&other.config, &["log", "verify"]).await.code == Some(0))
        .await;
    for model in ["transfer", "extraction", "monitoring", "datapoints"] {
        signalbox(&other.config, &["projections", "rebuild", model]).await.well();
    }
    assert_eq!((total("/api/v1/datapoints").await, total("/api/v1/jobs").await), (json!(5), json!(0)));
    admin.get(&transfer).await.error(404);
    world.finish_with_mail().await;
    other.finish_with_mail().await;
}

/// An archive of which a part is missing or broken is refused as a whole.
async fn cut_archives_leave_nothing(archive: &Path) {
    let servers = signalbox_test_support::TestServers::start().await;
    let whole = std::fs::read_to_string(archive).unwrap();
    let lines: Vec<_> = whole.lines().collect();
    let pool = &servers.pool;
    let without_last = lines[..lines.len() - 1].join("\n") + "\n";
    let without_one = [&lines[..5], &lines[6..]].concat().join("\n") + "\n";
    let half = &whole[..whole.len() / 2];
    let broken = whole.replacen("\"position\":2,", "\"position\":two,", 1);
    for text in [without_last.as_str(), &without_one, half, &broken, "", "{}\n"] {
        let imported = signalbox_log_archive::import(pool, text.as_bytes(), |_, _| {}).await;
        assert!(imported.is_err(), "{imported:?}");
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM events").fetch_one(pool).await.unwrap();
        assert_eq!(left, 0);
    }
    servers.finish().await;
}
