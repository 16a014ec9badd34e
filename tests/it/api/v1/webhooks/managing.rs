//! Creating, changing and deleting subscriptions.

use reqwest::Method;
use serde_json::{Value, json};

use super::{WEBHOOKS, path};
use crate::harness::World;

fn webhook(url: &str) -> Value {
    json!({"url": url, "events": ["experiment.started"]})
}

#[tokio::test]
async fn a_subscription_is_created_shown_changed_and_deleted() {
    let world = World::start().await;
    let body = json!({"url": "https://Example.org/hook", "secret": "a shared secret", "enabled": true,
        "events": ["sensor.reading", "experiment.started", "sensor.reading"]});
    let answer = world.admin.post(WEBHOOKS, body).await;
    let made = answer.expect(201);
    assert_eq!((&made["status"], &made["url"]), (&json!("success"), &json!("https://Example.org/hook")));
    assert_eq!(made["events"], json!(["sensor.reading", "experiment.started"]));
    assert_eq!((&made["enabled"], &made["has_secret"]), (&json!(true), &json!(true)));
    assert_eq!((&made["failing_since"], &made["replaying"]), (&Value::Null, &json!(false)));
    let shown = world.admin.get(&path(&made)).await;
    assert_eq!(shown.header("etag"), Some("\"1\""));
    assert_eq!(shown.expect(200)["url"], "https://Example.org/hook");
    let put = async |changes: Value| world.admin.put(&path(&made), changes).await.expect(200);
    let changed = put(json!({"events": ["system.health_changed"], "enabled": false})).await;
    assert_eq!((&changed["events"], &changed["enabled"]), (&json!(["system.health_changed"]), &json!(false)));
    assert_eq!(changed["has_secret"], true, "what is absent stays");
    assert_eq!(put(json!({"secret": null})).await["has_secret"], false);
    assert_eq!(put(json!({"secret": "another one"})).await["has_secret"], true);
    assert_eq!(put(json!({"secret": ""})).await["has_secret"], false);
    let stale = world.admin.request(Method::PUT, &path(&made)).header("if-match", "\"1\"");
    world.admin.send(stale.json(&json!({"enabled": true}))).await.error(412);
    world.admin.delete(&path(&made)).await.expect(200);
    world.admin.get(&path(&made)).await.error(404);
    world.admin.delete(&path(&made)).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn a_secret_is_nowhere_to_be_read() {
    let world = World::start().await;
    let body = json!({"url": "https://example.org/hook", "secret": "a shared secret",
        "events": ["experiment.started"]});
    let answer = world.admin.post(WEBHOOKS, body).await;
    let made = answer.expect(201);
    world.admin.put(&path(&made), json!({"secret": "a second secret"})).await.expect(200);
    let shown = [
        answer.text(),
        world.admin.get(&path(&made)).await.text(),
        world.admin.get(WEBHOOKS).await.text(),
        world.events_of("webhook").await,
    ];
    let columns = "SELECT string_agg(w::text, '') FROM read.webhooks w";
    let rows: String = sqlx::query_scalar(columns).fetch_one(&world.servers.pool).await.unwrap();
    for text in shown.iter().chain([&rows]) {
        assert!(!text.contains("shared secret") && !text.contains("second secret"), "{text}");
        assert!(!text.contains("\"secret\""), "{text}");
    }
    world.finish().await;
}

#[tokio::test]
async fn a_url_is_subscribed_once_however_it_is_spelled() {
    let world = World::start().await;
    let first = world.admin.post(WEBHOOKS, webhook("http://example.org")).await.expect(201);
    for same in ["http://example.org", "http://EXAMPLE.org/", "HTTP://example.org"] {
        world.admin.post(WEBHOOKS, webhook(same)).await.error(409);
    }
    let other = world.admin.post(WEBHOOKS, webhook("http://example.org/a")).await.expect(201);
    world.admin.put(&path(&other), json!({"url": "http://example.org/"})).await.error(409);
    world.admin.put(&path(&other), json!({"url": "http://example.org/b"})).await.expect(200);
    world.admin.post(WEBHOOKS, webhook("http://example.org/a")).await.expect(201);
    world.admin.delete(&path(&first)).await.expect(200);
    world.admin.post(WEBHOOKS, webhook("http://example.org/")).await.expect(201);
    world.finish().await;
}

#[tokio::test]
async fn what_is_wrong_is_refused() {
    let world = World::start().await;
    for wrong in [
        json!({"events": ["experiment.started"]}),
        json!({"url": "https://example.org/"}),
        json!({"url": "https://example.org/", "events": []}),
        json!({"url": "https://example.org/", "events": ["experiment.exploded"]}),
        json!({"url": "https://example.org/", "events": ["experiment.started"], "secret": "x".repeat(256)}),
        webhook("example.org"),
        webhook("ftp://example.org/"),
        webhook("https://"),
        webhook("https://user:password@example.org/"),
        webhook("https://example.org/a\r\nb"),
        webhook("https://example.org/a\tb"),
        webhook(&format!("https://example.org/{}", "x".repeat(2048))),
    ] {
        world.admin.post(WEBHOOKS, wrong).await.error(422);
    }
    let operator = world.user("operator", "operator").await;
    operator.get(WEBHOOKS).await.error(403);
    operator.post(WEBHOOKS, webhook("https://example.org/")).await.error(403);
    world.finish().await;
}

#[tokio::test]
async fn the_list_is_filtered() {
    let world = World::start().await;
    for (url, event, enabled) in [
        ("https://one.example/", "experiment.started", true),
        ("https://two.example/", "experiment.stopped", true),
        ("https://three.example/", "experiment.started", false),
    ] {
        let body = json!({"url": url, "events": [event], "enabled": enabled});
        world.admin.post(WEBHOOKS, body).await.expect(201);
    }
    let urls = async |query: &str| {
        let page = world.admin.get(&format!("{WEBHOOKS}?{query}")).await.expect(200);
        let rows = page["data"].as_array().unwrap().iter();
        rows.map(|row| row["url"].as_str().unwrap().replace("https://", "")).collect::<Vec<_>>()
    };
    assert_eq!(urls("").await, ["three.example/", "two.example/", "one.example/"]);
    assert_eq!(urls("event=experiment.started").await, ["three.example/", "one.example/"]);
    assert_eq!(urls("enabled=true&url=ONE").await, ["one.example/"]);
    assert_eq!(urls("page=2&page_size=2").await, ["one.example/"]);
    world.admin.get(&format!("{WEBHOOKS}?event=experiment.exploded")).await.error(422);
    world.finish().await;
}
