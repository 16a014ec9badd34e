//! Earlier versions of rules, webhooks, dashboards and jobs come back.

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    harness::{Client, World},
    routes,
};

async fn restore(client: &Client, path: &str, version: i64) -> Value {
    client.post(&format!("{path}/restore"), json!({ "version": version })).await.expect(200)
}

/// `shown` without what is another one after every change.
fn content(shown: &Value) -> Value {
    let mut content = shown.clone();
    for field in ["updated_on", "updated_at", "next_run", "last_triggered_at"] {
        content.as_object_mut().unwrap().remove(field);
    }
    content
}

fn id(made: &Value) -> String {
    made["public_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn each_kind_is_restored_completely() {
    let world = World::start().await;
    let admin = &world.admin;
    let subjects = routes::subjects(&world).await;
    let other = world.agent("other").await;
    let changes = [
        (
            format!("/api/v1/rules/{}", subjects.rule),
            json!({"name": "n", "operator": "between", "threshold": 1,
            "threshold_high": 2, "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded",
            "cooldown_seconds": 1, "enabled": false}),
        ),
        (
            format!("/api/v1/webhooks/{}", subjects.webhook),
            json!({"url": "https://example.org/other", "enabled": false,
            "events": ["sensor.reading"]}),
        ),
        (format!("/api/v1/dashboards/{}", subjects.dashboard), json!({"name": "n", "is_global": true})),
        (
            format!("/api/jobs/{}", subjects.job),
            json!({"name": "n", "type": "pull", "source_agent_id": other.id,
            "destination_agent_id": other.id, "source_path": "/c", "destination_path": "/d", "schedule": "0 0 1 1 1 *",
            "timezone": "Europe/Berlin", "enabled": false, "retry": {"max_attempts": 1, "backoff_seconds": 1},
            "overlap": "queue", "description": "d"}),
        ),
    ];
    for (path, change) in changes {
        let before = admin.get(&path).await;
        let version: i64 = before.header("etag").unwrap().trim_matches('"').parse().unwrap();
        let changed = admin.put(&path, change).await.expect(200);
        let request =
            admin.request(Method::POST, &format!("{path}/restore")).header("x-request-id", "going-back");
        let restored = admin.send(request.json(&json!({ "version": version }))).await;
        assert_eq!(content(&restored.expect(200)), content(&before.expect(200)), "{path}");
        assert_eq!(restored.header("etag"), Some(format!("\"{}\"", version + 2).as_str()), "{path}");
        assert_eq!(content(&admin.get(&path).await.expect(200)), content(&restored.expect(200)));
        let history = admin.get(&format!("{path}/history")).await.expect(200);
        let newest = if history.is_array() { &history[0] } else { &history["data"][0] };
        assert_eq!(newest["restored_version"], version, "{path}");
        let event = admin.get(&format!("/api/v1/log/{}", newest["position"])).await.expect(200);
        assert_eq!(
            (&event["restored_version"], &event["correlation"]),
            (&json!(version), &json!("going-back"))
        );
        assert!(event["actor"].as_str().unwrap().starts_with("user:"));
        // And forth, and then there is nothing to do.
        assert_eq!(content(&restore(admin, &path, version + 1).await), content(&changed), "{path}");
        let again = admin.post(&format!("{path}/restore"), json!({"version": version + 1})).await;
        again.expect(200);
        assert_eq!(again.header("etag"), Some(format!("\"{}\"", version + 3).as_str()), "{path}");
        let invalid = if path.starts_with("/api/v1/") { 422 } else { 400 };
        for wrong in [json!(0), json!(-1), json!(99), json!("1"), json!(null)] {
            admin.post(&format!("{path}/restore"), json!({ "version": wrong })).await.error(invalid);
        }
        let stale = admin.request(Method::POST, &format!("{path}/restore")).header("if-match", "\"1\"");
        admin.send(stale.json(&json!({ "version": version }))).await.error(412);
        let deleted = admin.delete(&path).await.status;
        assert!(matches!(deleted, 200 | 204));
        admin.post(&format!("{path}/restore"), json!({ "version": version })).await.error(404);
        admin.get(&format!("{path}/history")).await.error(404);
    }
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_dashboard_gets_its_widgets_back() {
    let world = World::start().await;
    let owner = world.user("owner", "operator").await;
    let event = async |name: &str| {
        id(&owner.post("/api/v1/events", json!({"name": name, "type": "sensor"})).await.expect(201))
    };
    let (boiler, tank) = (event("boiler").await, event("tank").await);
    let path = format!(
        "/api/v1/dashboards/{}",
        id(&owner.post("/api/v1/dashboards", json!({"name": "d"})).await.expect(201))
    );
    let add = async |title: &str, event: &str| {
        let widget = json!({"widget_type": "gauge", "title": title, "event_public_id": event});
        id(&owner.post(&format!("{path}/widgets"), widget).await.expect(201))
    };
    let (first, second, _third) = (add("1", &boiler).await, add("2", &tank).await, add("3", &boiler).await);
    let before = owner.get(&path).await.expect(200);
    owner.delete(&format!("{path}/widgets/{first}")).await.expect(200);
    owner
        .put(&format!("{path}/widgets/{second}"), json!({"x": 5, "event_public_id": null}))
        .await
        .expect(200);
    let fourth = add("4", &tank).await;
    assert_eq!(restore(&owner, &path, 4).await, before, "the same widgets, in the same order");
    owner.put(&format!("{path}/widgets/{fourth}"), json!({"x": 1})).await.error(404);
    owner.put(&format!("{path}/widgets/{first}"), json!({"x": 1})).await.expect(200);
    let with_fourth = restore(&owner, &path, 7).await;
    let titles: Vec<_> =
        with_fourth["widgets"].as_array().unwrap().iter().map(|widget| widget["title"].clone()).collect();
    assert_eq!(titles, [json!("2"), json!("3"), json!("4")]);
    // A restored version is one like any other.
    let restored = owner.get(&format!("{path}?at=999999999")).await;
    restored.error(422);
    assert_eq!(restore(&owner, &path, 8).await, before);
    // A widget of a deleted channel is empty.
    owner.put(&path, json!({"name": "e"})).await.expect(200);
    owner.delete(&format!("/api/v1/events/{boiler}")).await.expect(200);
    let unlinked = restore(&owner, &path, 4).await;
    let events: Vec<_> = unlinked["widgets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|widget| widget["event_public_id"].clone())
        .collect();
    assert_eq!(events, [json!(null), json!(tank), json!(null)]);
    assert_eq!(unlinked["name"], "d");
    for (name, role) in [("other", "operator"), ("viewer", "viewer")] {
        let client = world.user(name, role).await;
        client.post(&format!("{path}/restore"), json!({"version": 1})).await.error(403);
    }
    assert_eq!(restore(&owner, &path, 1).await["widgets"], json!([]));
    world.finish().await;
}

#[tokio::test]
async fn what_is_gone_cannot_be_named_again() {
    let world = World::start().await;
    let admin = &world.admin;
    let event = async |name: &str| {
        id(&admin.post("/api/v1/events", json!({"name": name, "type": "sensor"})).await.expect(201))
    };
    let (boiler, tank) = (event("boiler").await, event("tank").await);
    let rule = |name: &str| json!({"name": name, "event_public_id": boiler, "operator": "gt", "threshold": 1, "action_type": "log"});
    let path = format!("/api/v1/rules/{}", id(&admin.post("/api/v1/rules", rule("first")).await.expect(201)));
    admin.put(&path, json!({"event_public_id": tank, "name": "second"})).await.expect(200);
    // Its name was taken meanwhile.
    let taken =
        format!("/api/v1/rules/{}", id(&admin.post("/api/v1/rules", rule("first")).await.expect(201)));
    admin.post(&format!("{path}/restore"), json!({"version": 1})).await.error(409);
    admin.delete(&taken).await.expect(200);
    admin.delete(&format!("/api/v1/events/{boiler}")).await.expect(200);
    let refused = admin.post(&format!("{path}/restore"), json!({"version": 1})).await.error(404);
    let expected = "Rule 'first' watches the event 'boiler', which was deleted: restore another version, or change the rule to another event.";
    assert_eq!(refused, expected);
    assert_eq!(admin.get(&path).await.expect(200)["name"], "second");

    let (old, new) = (world.agent("old").await, world.agent("new").await);
    let job = json!({"name": "j", "source_agent_id": old.id, "destination_agent_id": new.id, "source_path": "/a", "destination_path": "/b"});
    let path = format!("/api/jobs/{}", admin.post("/api/jobs", job).await.id());
    admin.put(&path, json!({"source_agent_id": new.id})).await.expect(200);
    admin.delete(&format!("/api/agents/{}", old.id)).await.expect(204);
    admin.put(&path, json!({"source_agent_id": old.id})).await.error(400);
    admin.post(&format!("{path}/restore"), json!({"version": 1})).await.error(400);
    world.finish().await;
}

#[tokio::test]
async fn a_webhook_keeps_its_secret() {
    let world = World::start().await;
    let admin = &world.admin;
    let webhook = json!({"url": "https://example.org/a", "events": ["sensor.reading"]});
    let path = format!("/api/v1/webhooks/{}", id(&admin.post("/api/v1/webhooks", webhook).await.expect(201)));
    admin.put(&path, json!({"url": "https://example.org/b", "secret": "planted"})).await.expect(200);
    let restored = restore(admin, &path, 1).await;
    assert_eq!((&restored["url"], &restored["has_secret"]), (&json!("https://example.org/a"), &json!(true)));
    admin.put(&path, json!({"url": "https://example.org/b"})).await.expect(200);
    let other = json!({"url": "https://example.org/a", "events": ["sensor.reading"]});
    admin.post("/api/v1/webhooks", other).await.expect(201);
    admin.post(&format!("{path}/restore"), json!({"version": 1})).await.error(409);
    world.finish().await;
}

#[tokio::test]
async fn of_concurrent_restores_one_is_last_and_versions_let_one_win() {
    let world = World::start().await;
    let admin = &world.admin;
    let path = format!(
        "/api/v1/dashboards/{}",
        id(&admin.post("/api/v1/dashboards", json!({"name": "1"})).await.expect(201))
    );
    for version in 2..=6 {
        let widget = json!({"widget_type": "gauge", "title": version.to_string()});
        admin.post(&format!("{path}/widgets"), widget).await.expect(201);
    }
    let all = join_all((1..=5).map(|version| restore(admin, &path, version))).await;
    let shown = admin.get(&path).await.expect(200);
    assert!(all.contains(&shown), "one of them as a whole: {shown}");
    let tag = admin.get(&path).await.header("etag").unwrap().to_owned();
    let insisting = (2..=6).map(|version| {
        let request = admin.request(Method::POST, &format!("{path}/restore")).header("if-match", &tag);
        admin.send(request.json(&json!({ "version": version })))
    });
    // One of them may be what there is already, which changes nothing and so leaves the version as it is.
    let answers = join_all(insisting).await;
    let wins = answers.iter().filter(|answer| answer.status == 200).count();
    assert!((1..=2).contains(&wins), "{wins}");
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 412)));
    // A repetition with the same key does nothing.
    let keyed = || {
        let request =
            admin.request(Method::POST, &format!("{path}/restore")).header("idempotency-key", "once");
        request.json(&json!({"version": 1}))
    };
    let first = admin.send(keyed()).await.expect(200);
    admin.put(&path, json!({"name": "other"})).await.expect(200);
    assert_eq!(admin.send(keyed()).await.expect(200), first);
    assert_eq!(admin.get(&path).await.expect(200)["name"], "other");
    world.finish().await;
}
