//! The log that people read.

use chrono::TimeDelta;
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use crate::harness::{ADMIN, Client, PASSWORD, World, eventually, seconds};

const PATH: &str = "/api/v1/logging";

async fn write(client: &Client, entry: Value) -> Value {
    client.post(PATH, entry).await.expect(201)
}

fn path(entry: &Value) -> String {
    format!("{PATH}/{}", entry["public_id"].as_str().unwrap())
}

async fn contents(client: &Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("{PATH}?{query}")).await.expect(200);
    let rows = page["data"].as_array().unwrap().iter();
    rows.map(|row| row["content"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn an_entry_is_written_shown_marked_and_edited() {
    let world = World::start().await;
    let operator = world.user("operator", "operator").await;
    let answer = operator.post(PATH, json!({"content": " too hot ", "logging_type": "warning"})).await;
    let entry = answer.expect(201);
    let fields = ["content", "type", "logging_type", "status", "status_type", "source"];
    let expected = ["too hot", "warning", "warning", "unread", "unread", "api"];
    for (field, expected) in fields.iter().zip(expected) {
        assert_eq!(entry[field], expected, "{field}");
    }
    let me = operator.get("/api/v1/auth/me").await.expect(200);
    assert_eq!(entry["user_public_id"], me["public_id"]);
    let shown = world.admin.get(&path(&entry)).await;
    assert_eq!((shown.expect(200), shown.header("etag")), (entry.clone(), Some("\"1\"")));
    let put = async |changes: Value| operator.put(&path(&entry), changes).await.expect(200);
    assert_eq!(put(json!({"status_type": "read"})).await["status"], "read");
    assert_eq!(put(json!({"status": "unread"})).await["status_type"], "unread");
    let edited = put(json!({"content": "far too hot"})).await;
    assert_eq!((&edited["content"], &edited["status"]), (&json!("far too hot"), &json!("unread")));
    assert_eq!(put(json!({})).await["status"], "read", "a change of nothing marks as read");
    // A fetched entry may be sent back unchanged.
    let back = put(world.admin.get(&path(&entry)).await.expect(200)).await;
    assert_eq!((&back["content"], &back["status"]), (&json!("far too hot"), &json!("read")));
    let stale = operator.request(Method::PUT, &path(&entry)).header("if-match", "\"1\"");
    operator.send(stale.json(&json!({"status": "unread"}))).await.error(412);
    operator.send(operator.request(Method::DELETE, &path(&entry))).await.error(405);
    world.finish().await;
}

#[tokio::test]
async fn an_entry_has_a_type_and_no_more_than_five_hundred_characters() {
    let world = World::start().await;
    let plain = write(&world.admin, json!({"content": "ä".repeat(500)})).await;
    assert_eq!((&plain["type"], plain["content"].as_str().unwrap().chars().count()), (&json!("info"), 500));
    let other = write(&world.admin, json!({"content": "c", "type": "error", "source": "press"})).await;
    assert_eq!((&other["logging_type"], &other["source"]), (&json!("error"), &json!("press")));
    for wrong in [
        json!({"content": "ä".repeat(501)}),
        json!({"content": " "}),
        json!({"content": 1}),
        json!({}),
        json!({"content": "c", "type": "fatal"}),
        json!({"content": "c", "logging_type": "fatal"}),
        json!({"content": "c", "source": ""}),
    ] {
        world.admin.post(PATH, wrong).await.error(422);
    }
    world.admin.put(&path(&plain), json!({"content": "x".repeat(501)})).await.error(422);
    world.admin.put(&path(&plain), json!({"status": "seen"})).await.error(422);
    world.finish().await;
}

#[tokio::test]
async fn the_list_is_filtered_by_either_name_of_a_field() {
    let world = World::start().await;
    let viewer = world.user("viewer", "viewer").await;
    let mut entries = Vec::new();
    for (content, kind, source) in
        [("one", "info", "press"), ("two", "error", "press"), ("three", "warning", "boiler")]
    {
        entries.push(write(&world.admin, json!({"content": content, "type": kind, "source": source})).await);
    }
    world.admin.put(&path(&entries[1]), json!({"status": "read"})).await.expect(200);
    for query in ["type=error", "logging_type=error", "status=read", "status_type=read", "content=TW"] {
        assert_eq!(contents(&viewer, query).await, ["two"], "{query}");
    }
    assert_eq!(contents(&viewer, "source=press").await, ["two", "one"]);
    assert_eq!(contents(&viewer, "source=press&page=2&page_size=1").await, ["one"]);
    assert_eq!(contents(&viewer, "source=press&status=unread").await, ["one"]);
    let since = entries[1]["created_on"].as_str().unwrap();
    assert_eq!(contents(&viewer, &format!("from={since}")).await, ["three", "two"]);
    assert_eq!(contents(&viewer, &format!("from={since}&to={since}")).await, Vec::<String>::new());
    let me = viewer.get("/api/v1/auth/me").await.expect(200);
    let of_viewer = format!("user_public_id={}", me["public_id"].as_str().unwrap());
    assert_eq!(contents(&viewer, &of_viewer).await, ["viewer logged in from 127.0.0.1."]);
    assert!(contents(&viewer, "user_public_id=nobody").await.is_empty());
    for wrong in ["type=fatal", "status=seen", "from=yesterday", "page=0", "page_size=101"] {
        viewer.get(&format!("{PATH}?{wrong}")).await.error(422);
    }
    viewer.post(PATH, json!({"content": "c"})).await.error(403);
    viewer.put(&path(&entries[0]), json!({"status": "read"})).await.error(403);
    // With a trailing slash too, as some clients ask.
    viewer.get("/api/v1/logging/").await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn logins_and_failed_logins_leave_entries() {
    let world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    world.clock.advance(TimeDelta::seconds(1));
    world.user("ada", "operator").await;
    // Each gateway counts for itself.
    let anonymous = world.at_one_gateway().anonymous();
    let wrong = |login: &str| json!({"email": login, "password": "hunter2 is my password"});
    for path in ["/api/auth/login", "/api/v1/auth/login"] {
        for login in ["ADA", "my secret in the wrong field"] {
            world.clock.advance(TimeDelta::seconds(1));
            anonymous.post(path, wrong(login)).await.error(401);
        }
    }
    world.clock.advance(TimeDelta::seconds(1));
    let ada = json!({"email": "ada@example.org", "password": PASSWORD});
    anonymous.post("/api/v1/auth/login", ada).await.expect(200);
    let expected = [
        "ada logged in from 127.0.0.1.",
        "A login as an unknown user from 127.0.0.1 failed.",
        "A login as ada from 127.0.0.1 failed.",
        "ada logged in from 127.0.0.1.",
        "admin logged in from 127.0.0.1.",
    ];
    assert_eq!(contents(&world.admin, "source=auth").await, expected);
    let failed = world.admin.get(&format!("{PATH}?source=auth&type=warning")).await;
    let page = failed.expect(200);
    assert_eq!(page["total"], 2);
    let users = world.admin.get("/api/v1/users").await.expect(200);
    assert_eq!(page["data"][1]["user_public_id"], users["data"][0]["public_id"]);
    assert_eq!(page["data"][0]["user_public_id"], Value::Null);
    anonymous.post("/api/auth/login", wrong("ada")).await.error(401);
    world.clock.advance(TimeDelta::seconds(61));
    let counted = [
        "A login as ada from 127.0.0.1 failed 2 more times within a minute.",
        "A login as an unknown user from 127.0.0.1 failed 1 more time within a minute.",
    ];
    eventually(seconds(20), async || {
        let mut newest = contents(&world.admin, "source=auth&type=warning&page_size=2").await;
        newest.sort();
        newest == counted
    })
    .await;
    let events = world.events_of("log_entry").await;
    for secret in ["hunter2", "wrong field", PASSWORD] {
        assert!(!events.contains(secret), "{events}");
    }
    // The admin's name is not its address.
    assert!(!events.contains(ADMIN));
    world.finish().await;
}

#[tokio::test]
async fn a_search_ends_with_its_client_and_counts_until_then() {
    let world = World::with(|config| config.limits.reads_per_user = 1).await;
    let pool = &world.servers.pool;
    let mut blocker = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    sqlx::query("LOCK TABLE read.log_entries IN ACCESS EXCLUSIVE MODE").execute(&mut *blocker).await.unwrap();
    let waiting = async || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                        AND wait_event_type = 'Lock' AND query LIKE '%strpos(lower(%' AND pid <> pg_backend_pid()";
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(pool).await.unwrap()
    };
    let client = world.at_one_gateway();
    let admin = client.clone();
    let search = tokio::spawn(async move { admin.get(&format!("{PATH}?content=zzz")).await.status });
    eventually(seconds(10), async || waiting().await == 1).await;
    client.get("/api/v1/events").await.error(429);
    search.abort();
    eventually(seconds(6), async || waiting().await == 0).await;
    eventually(seconds(6), async || client.get("/api/v1/events").await.status == 200).await;
    blocker.rollback().await.unwrap();
    world.finish().await;
}
