//! Writes whose read models stand still: they are answered from the log.

use std::iter;

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use crate::{
    harness::{Answer, Client, World, eventually, seconds},
    routes,
};

/// A request, and where to see later what it did; none for where its answer says.
struct Write {
    method: Method,
    path: String,
    body: Value,
    seen_at: Option<String>,
}

fn post(path: impl Into<String>, body: Value) -> Write {
    Write { method: Method::POST, path: path.into(), body, seen_at: None }
}

/// A change of what `path` shows.
fn put(path: impl Into<String>, body: Value) -> Write {
    let path = path.into();
    Write { method: Method::PUT, seen_at: Some(path.clone()), path, body }
}

impl Write {
    /// Shown by `path` in the end.
    fn seen_at(self, path: &str) -> Self {
        Self { seen_at: Some(path.to_owned()), ..self }
    }

    async fn send(&self, client: &Client) -> Answer {
        client.send(client.request(self.method.clone(), &self.path).json(&self.body)).await
    }
}

/// Whether `shown`, or something in one of its lists, has all that `answered` has. Workers go on with transfers, deliveries
/// and documents as soon as they learn of them.
fn shows(shown: &Value, answered: &Value, by_workers: bool) -> bool {
    let is_it = |shown: &Value| {
        answered.as_object().unwrap().iter().all(|(key, value)| {
            let is_of_the_answer =
                answered.get("message").is_some() && ["message", "status"].contains(&key.as_str());
            let is_moving = by_workers && !["id", "public_id", "source_path"].contains(&key.as_str());
            is_of_the_answer
                || is_moving
                || ["token", "last_seen"].contains(&key.as_str())
                || shown.get(key) == Some(value)
        })
    };
    let lists = shown.as_object().into_iter().flat_map(|shown| shown.values());
    let listed = lists.chain(iter::once(shown)).filter_map(Value::as_array).flatten();
    iter::once(shown).chain(listed).any(is_it)
}

#[tokio::test]
async fn what_no_read_model_shows_yet_is_answered_from_the_log() {
    let world = World::start().await;
    // One that does not wait for what an answer leaves to come.
    let admin = &world.at_one_gateway();
    let subjects = routes::subjects(&world).await;
    let id = |made: &Value| made["public_id"].as_str().unwrap().to_owned();
    let made = async |path: &str, body: Value| id(&admin.post(path, body).await.expect(201));
    let v1 = |kind: &str, id: &str| format!("/api/v1/{kind}/{id}");
    let agent = subjects.agent.id;
    let job = |name: &str| {
        json!({"name": name, "source_agent_id": agent, "destination_agent_id": agent, "source_path": "/a",
            "destination_path": "/b"})
    };
    let spare_job = format!("/api/jobs/{}", admin.post("/api/jobs", job("spare")).await.id());
    let spare_agent = format!("/api/agents/{}", world.agent("spare").await.id);
    let spare_dashboard = v1("dashboards", &made("/api/v1/dashboards", json!({"name": "spare"})).await);
    let spare_webhook = json!({"url": "http://127.0.0.1:9/", "events": ["system.health_changed"]});
    let spare_webhook = v1("webhooks", &made("/api/v1/webhooks", spare_webhook).await);
    let rule = |name: &str| {
        json!({"name": name, "event_public_id": subjects.event, "operator": "gt", "threshold": 9000,
            "action_type": "log"})
    };
    let spare_rule = v1("rules", &made("/api/v1/rules", rule("spare")).await);
    admin.put(&spare_rule, json!({"threshold": 1})).await.expect(200);
    let plugin =
        |name: &str| json!({"plugin_id": "simulated", "instance_name": name, "auto_create_events": false});
    let spare_plugin = v1("plugins", &made("/api/v1/plugins", plugin("spare")).await);
    let webhook = v1("webhooks", &subjects.webhook);
    let dashboard = v1("dashboards", &subjects.dashboard);
    let instance = v1("plugins", &subjects.plugin_instance);
    let experiment = v1("experiments", &subjects.experiment);
    admin.put(&format!("{experiment}/stop"), json!({})).await.expect(200);
    let transfer = json!({"source_agent_id": agent, "destination_agent_id": agent, "source_path": "/c", "destination_path": "/d"});
    let user = json!({"email": "late@example.org", "username": "late", "password": "long enough"});
    let channel = json!({"channel_id": "late", "channel_name": "Late", "direction": "input", "unit": "V"});
    let restored = json!({"version": 1});
    let alarm = v1("alarms", &subjects.alarm.to_string());
    let writes = [
        post("/api/agents", json!({"name": "late"})),
        put(&spare_agent, json!({"description": "late"})),
        post("/api/tokens", json!({"name": "late", "agent_id": agent})).seen_at("/api/tokens"),
        post("/api/jobs", job("late")),
        put(&spare_job, json!({"description": "late"})),
        post(format!("/api/jobs/{}/run", subjects.job), json!({})),
        post("/api/transfers", transfer),
        post(format!("/api/transfers/{}/cancel", subjects.transfer), json!({}))
            .seen_at(&format!("/api/transfers/{}", subjects.transfer)),
        post("/api/v1/users", user),
        put(v1("users", &subjects.user), json!({"username": "late too"})),
        post("/api/v1/tokens", json!({"name": "late"})).seen_at("/api/v1/tokens"),
        post("/api/v1/events", json!({"name": "late", "type": "sensor"})),
        put(v1("events", &subjects.event), json!({"unit": "V"})),
        post("/api/v1/experiments", json!({"name": "late"})),
        put(experiment, json!({"name": "late too"})),
        post("/api/v1/logging", json!({"content": "late"})),
        put(v1("logging", &subjects.log_entry), json!({"status": "read"})),
        post("/api/v1/dashboards", json!({"name": "late"})),
        put(&spare_dashboard, json!({"name": "late too"})),
        post(format!("{dashboard}/widgets"), json!({"widget_type": "gauge", "title": "late"}))
            .seen_at(&dashboard),
        post("/api/v1/rules", rule("late")),
        put(v1("rules", &subjects.rule), json!({"threshold": 9001})),
        post(format!("{alarm}/acknowledge"), json!({"comment": "late"})).seen_at(&alarm),
        post(format!("{spare_rule}/restore"), restored.clone()).seen_at(&spare_rule),
        post(
            "/api/v1/webhooks",
            json!({"url": "http://127.0.0.1:9/late", "events": ["system.health_changed"]}),
        ),
        put(&spare_webhook, json!({"enabled": false})),
        post(format!("{webhook}/test"), json!({})),
        post("/api/v1/plugins", plugin("late")),
        put(&spare_plugin, json!({"instance_name": "late too"})),
        post(format!("{instance}/channels"), channel).seen_at(&instance),
        post("/api/v1/ota", json!({"version": "9.9.9"})),
        Write {
            method: Method::DELETE,
            path: v1("jobs", &subjects.extraction.to_string()),
            body: json!({}),
            seen_at: Some(v1("jobs", &subjects.extraction.to_string())),
        },
    ];

    let mut held = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    sqlx::query("SELECT FROM read.checkpoints FOR UPDATE").execute(&mut *held).await.unwrap();
    let logging_in = async {
        let credentials = json!({"email": "subject", "password": "long enough"});
        admin.anonymous().post("/api/auth/login", credentials).await
    };
    let renewing = admin.post("/api/auth/refresh", json!({}));
    let (answers, logged_in, renewed) =
        tokio::join!(join_all(writes.iter().map(|write| write.send(admin))), logging_in, renewing);
    for answer in [&logged_in, &renewed] {
        assert_eq!((answer.status, answer.header("consistency")), (200, Some("eventual")));
    }
    for (Write { path, .. }, answer) in writes.iter().zip(&answers) {
        assert!((200..300).contains(&answer.status), "{path}: {} {}", answer.status, answer.text());
        assert_eq!(answer.header("consistency"), Some("eventual"), "{path}");
    }
    held.rollback().await.unwrap();

    for (write, answer) in writes.iter().zip(answers) {
        let path = match &write.seen_at {
            Some(path) => path.clone(),
            None => answer.header("location").unwrap_or_else(|| panic!("{}", write.path)).to_owned(),
        };
        let by_workers = ["/transfers/", "/deliveries/", "/v1/jobs/"].iter().any(|kind| path.contains(kind));
        let mut answered: Value = serde_json::from_slice(&answer.body).unwrap();
        if answered["token"].is_object() {
            answered = answered["token"].take();
        }
        let is_shown = async || {
            let shown = admin.get(&path).await;
            shown.status == 200 && shows(&serde_json::from_slice(&shown.body).unwrap(), &answered, by_workers)
        };
        eventually(seconds(20), is_shown).await;
    }
    assert_eq!(logged_in.expect(200)["user"]["email"], "subject@example.org");
    world.anonymous().log_in("late", "long enough").await;
    world.finish_with_mail().await;
}

/// Omitted fields would be taken from an older version than the one that it insists on.
#[tokio::test]
async fn a_partial_change_of_a_version_that_is_not_shown_loses_nothing() {
    let world = World::start().await;
    let admin = &world.at_one_gateway();
    let agent = world.agent("press").await.id;
    let job = json!({"name": "nightly", "source_agent_id": agent, "destination_agent_id": agent, "source_path": "/a",
        "destination_path": "/b"});
    let job = format!("/api/jobs/{}", admin.post("/api/jobs", job).await.id());
    for path in [format!("/api/agents/{agent}"), job] {
        let mut held = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
        sqlx::query("SELECT FROM read.checkpoints FOR UPDATE").execute(&mut *held).await.unwrap();
        let renamed = admin.put(&path, json!({"name": "renamed"})).await;
        assert_eq!((renamed.status, renamed.header("consistency")), (200, Some("eventual")));
        let describe = || {
            let request =
                admin.request(Method::PUT, &path).header("if-match", renamed.header("etag").unwrap());
            admin.send(request.json(&json!({"description": "described"})))
        };
        let early = describe().await.error(503);
        assert!(early.contains("try again"), "{early}");
        held.rollback().await.unwrap();
        world.read_models.show_all().await;
        let described = describe().await.expect(200);
        assert_eq!((&described["name"], &described["description"]), (&json!("renamed"), &json!("described")));
    }
    world.finish_with_mail().await;
}
