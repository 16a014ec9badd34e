//! The versions of rules, webhooks, dashboards and jobs, and what is different between them.

use serde_json::{Value, json};

use crate::{
    harness::{Client, World},
    routes,
};

async fn history(client: &Client, path: &str) -> Vec<Value> {
    let shown = client.get(&format!("{path}/history")).await;
    let versions = shown.expect(200);
    let is_bare = versions.is_array();
    let total = if is_bare {
        shown.header("x-total-count").unwrap().parse().unwrap()
    } else {
        versions["total"].as_u64().unwrap()
    };
    let versions = if is_bare { versions } else { versions["data"].clone() };
    let versions = versions.as_array().unwrap().clone();
    assert_eq!(versions.len() as u64, total);
    versions
}

/// Version, kind and differences, without those of the beginning.
fn summaries(versions: &[Value]) -> Vec<(i64, &str, Value)> {
    versions
        .iter()
        .map(|version| {
            let kind = version["type"].as_str().unwrap();
            let changes = if kind.ends_with("_created") { json!(null) } else { version["changes"].clone() };
            (version["version"].as_i64().unwrap(), kind, changes)
        })
        .collect()
}

fn replace(path: &str, from: Value, to: Value) -> Value {
    json!({"op": "replace", "path": path, "from": from, "to": to})
}

#[tokio::test]
async fn versions_show_exactly_the_changed_fields() {
    let world = World::start().await;
    let admin = &world.admin;
    let subjects = routes::subjects(&world).await;
    let put = async |path: &str, body: Value| admin.put(path, body).await.expect(200);

    let rule = format!("/api/v1/rules/{}", subjects.rule);
    put(&rule, json!({"threshold": 5, "operator": "lt"})).await;
    let versions = history(admin, &rule).await;
    let changed = json!([
        replace("/operator", json!("gt"), json!("lt")),
        replace("/threshold", json!(9000.0), json!(5.0))
    ]);
    assert_eq!(summaries(&versions), [(2, "rule_updated", changed), (1, "rule_created", json!(null))]);
    let made = &versions[1]["changes"];
    assert_eq!(
        (&made[0]["op"], &made[0]["path"], &made[0]["to"]["threshold"]),
        (&json!("add"), &json!(""), &json!(9000.0))
    );
    assert!(made[0].get("from").is_none());
    let event = admin.get(&format!("/api/v1/log/{}", versions[0]["position"])).await.expect(200);
    for field in ["time", "actor", "type", "version", "position"] {
        assert_eq!(event[field], versions[0][field], "{field}");
    }

    let webhook = format!("/api/v1/webhooks/{}", subjects.webhook);
    put(&webhook, json!({"secret": "planted one"})).await;
    put(&webhook, json!({"secret": "planted two", "events": ["sensor.reading", "system.health_changed"]}))
        .await;
    put(&webhook, json!({"secret": null})).await;
    let versions = history(admin, &webhook).await;
    let events = replace(
        "/events",
        json!(["system.health_changed"]),
        json!(["sensor.reading", "system.health_changed"]),
    );
    let hidden = || json!("[hidden]");
    assert_eq!(
        summaries(&versions)[..3],
        [
            (4, "webhook_updated", json!([replace("/secret", hidden(), json!(null))])),
            (3, "webhook_updated", json!([events, replace("/secret", hidden(), hidden())])),
            (2, "webhook_updated", json!([replace("/secret", json!(null), hidden())])),
        ]
    );
    let sealed = "SELECT payload->'to'->>'sealed_secret' FROM events WHERE event_type = 'webhook_updated' AND sequence = 2";
    let sealed: String = sqlx::query_scalar(sealed).fetch_one(&world.servers.pool).await.unwrap();
    let text = json!(versions).to_string();
    assert!(!text.contains("planted") && !text.contains(&sealed), "{text}");

    let dashboard = format!("/api/v1/dashboards/{}", subjects.dashboard);
    let widget = format!("/widgets/{}", subjects.widget);
    put(&format!("{dashboard}{widget}"), json!({"x": 3, "config_json": "{}"})).await;
    put(&dashboard, json!({"name": "renamed"})).await;
    admin.delete(&format!("{dashboard}{widget}")).await.expect(200);
    let versions = history(admin, &dashboard).await;
    let gone = json!({"widget_type": "gauge", "title": "subject", "event_public_id": null, "x": 3, "y": 0, "w": 4,
        "h": 3, "config_json": "{}"});
    let moved = json!([
        replace(&format!("{widget}/config_json"), json!(null), json!("{}")),
        replace(&format!("{widget}/x"), json!(0), json!(3))
    ]);
    assert_eq!(
        summaries(&versions)[..3],
        [
            (5, "widget_removed", json!([{"op": "remove", "path": widget, "from": gone}])),
            (4, "dashboard_updated", json!([replace("/name", json!("subject"), json!("renamed"))])),
            (3, "widget_updated", moved),
        ]
    );

    let job = format!("/api/jobs/{}", subjects.job);
    put(&job, json!({"retry": {"max_attempts": 4}, "schedule": "0 0 1 1 1 *"})).await;
    admin.post(&format!("{job}/run"), json!({})).await.expect(201);
    let versions = history(admin, &job).await;
    let changed = json!([
        replace("/retry/max_attempts", json!(3), json!(4)),
        replace("/schedule", json!(null), json!("0 0 1 1 1 *"))
    ]);
    assert_eq!(summaries(&versions), [(2, "job_updated", changed), (1, "job_created", json!(null))]);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn versions_come_in_pages() {
    let world = World::start().await;
    let made = world.admin.post("/api/v1/dashboards", json!({"name": "0"})).await.expect(201);
    let path = format!("/api/v1/dashboards/{}", made["public_id"].as_str().unwrap());
    for name in 1..7 {
        world.admin.put(&path, json!({ "name": name.to_string() })).await.expect(200);
    }
    let whole = history(&world.admin, &path).await;
    assert_eq!(whole.len(), 7);
    let mut pieces = Vec::new();
    for page in 1..=4 {
        let shown = world.admin.get(&format!("{path}/history?page={page}&page_size=2")).await.expect(200);
        assert_eq!(shown["total"], 7);
        pieces.extend(shown["data"].as_array().unwrap().iter().cloned());
    }
    assert_eq!(pieces, whole);
    let beyond = world.admin.get(&format!("{path}/history?page=9&page_size=2")).await.expect(200);
    assert_eq!(beyond["data"], json!([]));
    world.finish().await;
}
