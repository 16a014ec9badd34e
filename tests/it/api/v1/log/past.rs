//! `?at=`: every resource as it was.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use crate::{
    harness::{Answer, Client, Receiver, World, eventually, seconds},
    routes,
};

/// A client's view of `path` when the log was at `position`.
struct Seen {
    path: String,
    position: i64,
    status: u16,
    etag: Option<String>,
    body: Value,
}

/// Everything that was seen, and at which paths.
struct Diary<'w> {
    world: &'w World,
    paths: Vec<String>,
    seen: Vec<Seen>,
}

fn body(answer: &Answer) -> Value {
    if answer.body.is_empty() { Value::Null } else { serde_json::from_slice(&answer.body).unwrap() }
}

impl<'w> Diary<'w> {
    fn new(world: &'w World, paths: Vec<String>) -> Self {
        Self { world, paths, seen: Vec::new() }
    }

    /// Notes what is to be seen at all paths, at a moment at which nothing happens and all that has happened is shown.
    async fn note(&mut self) {
        for path in self.paths.clone() {
            loop {
                let position = self.world.position().await;
                self.world.read_models.show(position).await;
                let answer = self.world.admin.get(&path).await;
                if self.world.position().await == position {
                    let (status, etag) = (answer.status, answer.header("etag").map(str::to_owned));
                    let body = body(&answer);
                    self.seen.push(Seen { path: path.clone(), position, status, etag, body });
                    break;
                }
            }
        }
    }

    /// Everything is still seen as it was.
    async fn check(&self) {
        assert!(self.seen.iter().any(|seen| seen.status == 404), "nothing was deleted");
        for Seen { path, position, status, etag, body: expected } in &self.seen {
            let answer = self.world.admin.get(&format!("{path}?at={position}")).await;
            assert_eq!(answer.status, *status, "{path} at {position}: {}", answer.text());
            if *status != 200 {
                let message = answer.error(404);
                assert!(
                    message.ends_with("by then") || message == "Datapoint not found",
                    "{path}: {message}"
                );
                continue;
            }
            let (mut shown, mut expected) = (body(&answer), expected.clone());
            if path.starts_with("/api/agents/") {
                // Signs of life are not in the log.
                for body in [&mut shown, &mut expected] {
                    body.as_object_mut().unwrap().remove("last_seen");
                }
            }
            if path.contains("/dashboards/") {
                assert!(shown.as_object_mut().unwrap().remove("values").is_some());
            }
            assert_eq!(shown, expected, "{path} at {position}");
            assert_eq!(answer.header("etag").map(str::to_owned), *etag, "{path} at {position}");
        }
    }
}

fn id(made: &Value) -> String {
    made["public_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn every_resource_is_shown_as_it_was() {
    let world = World::start().await;
    let admin = &world.admin;
    let before = world.position().await;
    let subjects = routes::subjects(&world).await;
    let job = format!("/api/jobs/{}", subjects.job);
    let agent = format!("/api/agents/{}", subjects.agent.id);
    let spare = world.agent("spare").await;
    let spare_agent = format!("/api/agents/{}", spare.id);
    let path = |kind: &str, id: &str| format!("/api/v1/{kind}/{id}");
    let paths = vec![
        agent.clone(),
        spare_agent.clone(),
        job.clone(),
        format!("/api/transfers/{}", subjects.transfer),
        path("users", &subjects.user),
        path("events", &subjects.event),
        path("experiments", &subjects.experiment),
        path("logging", &subjects.log_entry),
        path("dashboards", &subjects.dashboard),
        path("rules", &subjects.rule),
        path("alarms", &subjects.alarm.to_string()),
        path("webhooks", &subjects.webhook),
        path("jobs", &subjects.extraction.to_string()),
        path("plugins", &subjects.plugin_instance),
        format!("{}/channels", path("plugins", &subjects.plugin_instance)),
        path("ota", &subjects.firmware),
    ];
    let mut diary = Diary::new(&world, paths.clone());
    diary.note().await;
    let put = async |path: &str, body: Value| admin.put(path, body).await.expect(200);
    put(&agent, json!({"name": "another", "description": "d"})).await;
    put(&job, json!({"schedule": "0 0 1 1 1 *", "timezone": "Europe/Berlin"})).await;
    put(&path("users", &subjects.user), json!({"username": "renamed", "role": "viewer"})).await;
    put(&path("events", &subjects.event), json!({"unit": "V"})).await;
    put(&path("experiments", &subjects.experiment), json!({"name": "renamed"})).await;
    put(&path("logging", &subjects.log_entry), json!({"status": "read"})).await;
    put(&path("rules", &subjects.rule), json!({"threshold": 5})).await;
    let acknowledge = format!("{}/acknowledge", path("alarms", &subjects.alarm.to_string()));
    admin.post(&acknowledge, json!({"comment": "seen"})).await.expect(200);
    put(&path("webhooks", &subjects.webhook), json!({"enabled": false, "secret": "a planted secret"})).await;
    put(&path("plugins", &subjects.plugin_instance), json!({"instance_name": "renamed"})).await;
    let widget = format!("{}/widgets/{}", path("dashboards", &subjects.dashboard), subjects.widget);
    put(&widget, json!({"event_public_id": subjects.event, "x": 3})).await;
    let mapping =
        format!("{}/channels/{}", path("plugins", &subjects.plugin_instance), subjects.channel_mapping);
    put(&mapping, json!({"event_public_id": subjects.event})).await;
    diary.note().await;
    // Changes by the service itself, or by other users.
    admin.post(&format!("{job}/run"), json!({})).await.expect(201);
    let point = json!({"value": 6, "event_public_id": subjects.event});
    admin.post("/api/v1/datapoints", point).await.expect(201);
    let rule = path("rules", &subjects.rule);
    eventually(seconds(20), async || !admin.get(&rule).await.expect(200)["last_triggered_at"].is_null())
        .await;
    put(&format!("{}/stop", path("experiments", &subjects.experiment)), json!({})).await;
    // Twice, and what it says is another thing each time.
    for hostname in ["one", "two"] {
        let connect = json!({"system_info": {"hostname": hostname, "version": "1.0"}});
        world.as_agent(&subjects.agent).post("/api/agent/connect", connect).await.expect(200);
    }
    world.until_agent(&subjects.agent, "online").await;
    admin.post(&format!("/api/transfers/{}/cancel", subjects.transfer), json!({})).await.expect(200);
    admin.delete(&path("jobs", &subjects.extraction.to_string())).await.expect(200);
    let report = json!({"status": "error", "error_message": "no device"});
    admin.put(&format!("{}/status", path("plugins", &subjects.plugin_instance)), report).await;
    diary.note().await;
    put(&job, json!({"enabled": false})).await;
    admin.post(&format!("{job}/run"), json!({})).await.expect(201);
    diary.note().await;
    // A deleted event leaves its widgets and mappings.
    admin.delete(&rule).await.expect(200);
    admin.delete(&path("events", &subjects.event)).await.expect(200);
    diary.note().await;
    admin.delete(&job).await.expect(204);
    admin.delete(&spare_agent).await.expect(204);
    for (kind, id) in [
        ("users", &subjects.user),
        ("experiments", &subjects.experiment),
        ("dashboards", &subjects.dashboard),
        ("webhooks", &subjects.webhook),
        ("plugins", &subjects.plugin_instance),
        ("ota", &subjects.firmware),
    ] {
        admin.delete(&path(kind, id)).await.expect(200);
    }
    diary.note().await;
    // The present is the youngest past, and what was deleted is not shown now.
    diary.check().await;
    for path in &paths {
        let early = admin.get(&format!("{path}?at={before}")).await.error(404);
        assert!(early.ends_with("it had not been made by then"), "{path}: {early}");
        let invalid = if path.starts_with("/api/v1/") { 422 } else { 400 };
        let tomorrow = (world.clock.now() + TimeDelta::days(1)).format("%FT%TZ").to_string();
        for wrong in ["yesterday", "1e3", "2026-01-31", "999999999", &tomorrow] {
            admin.get(&format!("{path}?at={wrong}")).await.error(invalid);
        }
        for early in ["2001-01-01T00:00:00Z", "0", "-5"] {
            admin.get(&format!("{path}?at={early}")).await.error(404);
        }
    }
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_moment_may_be_a_time() {
    let world = World::start().await;
    let made =
        world.admin.post("/api/v1/events", json!({"name": "first", "type": "sensor"})).await.expect(201);
    let path = format!("/api/v1/events/{}", id(&made));
    let first = made["created_on"].as_str().unwrap();
    let changed = world.admin.put(&path, json!({"name": "second"})).await.expect(200);
    let second = changed["updated_on"].as_str().unwrap();
    let at = async |time: &str| world.admin.get(&format!("{path}?at={time}")).await;
    assert_eq!(at(first).await.expect(200)["name"], "first");
    assert_eq!(at(second).await.expect(200), changed);
    world.admin.delete(&path).await.expect(200);
    assert_eq!(at(second).await.expect(200), changed);
    let now = in_full(world.clock.now());
    assert!(at(&now).await.error(404).ends_with("it had been deleted by then"));
    world.finish().await;
}

#[tokio::test]
async fn past_states_need_the_permission_for_the_present_one() {
    let world = World::start().await;
    let subjects = routes::subjects(&world).await;
    let (viewer, stranger) = (world.user("viewer", "viewer").await, world.user("stranger", "operator").await);
    let now = world.position().await;
    let at = |path: String| format!("{path}?at={now}");
    for path in [
        format!("/api/jobs/{}", subjects.job),
        format!("/api/transfers/{}", subjects.transfer),
        format!("/api/v1/jobs/{}", subjects.extraction),
    ] {
        for client in [&viewer, &stranger] {
            let foreign = client.get(&at(path.clone())).await.error(404);
            assert_eq!(foreign, client.get(&path).await.error(404), "{path}");
        }
    }
    for path in [
        format!("/api/v1/rules/{}", subjects.rule),
        format!("/api/v1/webhooks/{}", subjects.webhook),
        format!("/api/v1/users/{}", subjects.user),
        format!("/api/v1/ota/{}", subjects.firmware),
        format!("/api/v1/webhooks/{}/deliveries/{}", subjects.webhook, subjects.delivery),
        format!("/api/v1/dashboards/{}", subjects.dashboard),
    ] {
        stranger.get(&at(path)).await.error(403);
    }
    for path in [
        format!("/api/agents/{}", subjects.agent.id),
        format!("/api/v1/events/{}", subjects.event),
        format!("/api/v1/plugins/{}", subjects.plugin_instance),
        format!("/api/v1/datapoints/{}", subjects.datapoint),
    ] {
        viewer.get(&at(path)).await.expect(200);
    }
    // A deleted job is its owner's.
    let job = format!("/api/jobs/{}", subjects.job);
    world.admin.delete(&job).await.expect(204);
    world.admin.get(&at(job.clone())).await.expect(200);
    assert_eq!(stranger.get(&at(job.clone())).await.error(404), "Job not found");
    world.finish_with_mail().await;
}

async fn make_global(owner: &Client, path: &str, is_global: bool) {
    owner.put(path, json!({ "is_global": is_global })).await.expect(200);
}

#[tokio::test]
async fn a_dashboard_shows_others_what_everybody_saw_and_sees() {
    let world = World::start().await;
    let (owner, other) = (world.user("owner", "operator").await, world.user("other", "operator").await);
    let made = owner.post("/api/v1/dashboards", json!({"name": "private"})).await.expect(201);
    let path = format!("/api/v1/dashboards/{}", id(&made));
    let private = world.position().await;
    make_global(&owner, &path, true).await;
    let global = world.position().await;
    let (then, now) = (format!("{path}?at={private}"), format!("{path}?at={global}"));
    other.get(&then).await.error(403);
    assert_eq!(other.get(&now).await.expect(200)["is_global"], true);
    owner.get(&then).await.expect(200);
    let hidden = &other.get(&format!("{path}/history")).await.expect(200)["data"];
    assert_eq!(hidden[1]["changes"], json!([]), "{hidden}");
    assert_eq!(
        (&hidden[0]["changes"][0]["op"], &hidden[0]["changes"][0]["path"]),
        (&json!("add"), &json!(""))
    );
    make_global(&owner, &path, false).await;
    other.get(&now).await.error(403);
    other.get(&format!("{path}/history")).await.error(403);
    owner.delete(&path).await.expect(200);
    other.get(&now).await.error(403);
    assert_eq!(owner.get(&now).await.expect(200)["name"], "private");
    world.finish().await;
}

fn in_full(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[tokio::test]
async fn a_dashboard_shows_the_values_of_that_moment() {
    let clock = Clock::manual("2026-03-01T10:00:00Z".parse().unwrap());
    let world = World::at(clock.clone(), |_| {}).await;
    let admin = &world.admin;
    let event = async |name: &str| {
        id(&admin.post("/api/v1/events", json!({"name": name, "type": "sensor"})).await.expect(201))
    };
    let (boiler, tank, idle) = (event("boiler").await, event("tank").await, event("idle").await);
    let dashboard = id(&admin.post("/api/v1/dashboards", json!({"name": "d"})).await.expect(201));
    let path = format!("/api/v1/dashboards/{dashboard}");
    for event in [&boiler, &tank, &idle, &boiler] {
        let widget = json!({"widget_type": "gauge", "title": "t", "event_public_id": event});
        admin.post(&format!("{path}/widgets"), widget).await.expect(201);
    }
    assert!(admin.get(&path).await.expect(200).get("values").is_none());
    let mut known = vec![(in_full(clock.now()), json!([]))];
    // Of one hour, of the next one, and after a long silence.
    for (event, minutes, value) in
        [(&boiler, 1, 1.0), (&tank, 2, 2.0), (&boiler, 3, 3.0), (&boiler, 60, 4.0), (&tank, 300, 5.0)]
    {
        clock.advance(TimeDelta::minutes(minutes));
        let point = json!({"value": value, "event_public_id": event});
        admin.post("/api/v1/datapoints", point).await.expect(201);
        let latest = admin.get("/api/v1/datapoints/latest").await.expect(200);
        known.push((in_full(clock.now()), latest));
    }
    // A late value, measured at a time when it was still unknown.
    let late = json!({"value": 9, "event_public_id": idle, "timestamp": known[1].0});
    let late = admin.post("/api/v1/datapoints", late).await.expect(201);
    for (index, (time, latest)) in known.iter().enumerate() {
        let shown = admin.get(&format!("{path}?at={time}")).await.expect(200);
        let mut values = shown["values"].as_array().unwrap().clone();
        let late: Vec<_> = values.extract_if(.., |point| point["public_id"] == late["public_id"]).collect();
        assert_eq!(json!(values), *latest, "{time}");
        assert_eq!(late.len(), usize::from(index > 0), "{time}");
    }
    // A deleted datapoint is of no time.
    let newest = known[5].1.as_array().unwrap().iter().find(|point| point["value"] == 5.0).unwrap();
    admin.delete(&format!("/api/v1/datapoints/{}", id(newest))).await.expect(200);
    let shown = admin.get(&format!("{path}?at={}", known[5].0)).await.expect(200);
    // Events are numbered by the command handler that made them, each of which has numbers in store.
    let value = |event: &str| {
        let mut shown = shown["values"].as_array().unwrap().iter();
        shown.find(|point| point["event_public_id"] == event).unwrap()["value"].clone()
    };
    assert_eq!([value(&boiler), value(&tank), value(&idle)], [json!(4.0), json!(2.0), json!(9.0)]);
    world.finish().await;
}

#[tokio::test]
async fn a_webhook_had_failed_since_then() {
    let world = World::start().await;
    let admin = &world.admin;
    let receiver = Receiver::start().await;
    let webhook = json!({"url": receiver.url(), "events": ["system.health_changed"]});
    let path = format!("/api/v1/webhooks/{}", id(&admin.post("/api/v1/webhooks", webhook).await.expect(201)));
    let mut diary = Diary::new(&world, vec![path.clone()]);
    diary.note().await;
    drop(receiver);
    let delivery = id(&admin.post(&format!("{path}/test"), json!({})).await.expect(201));
    eventually(seconds(20), async || !admin.get(&path).await.expect(200)["failing_since"].is_null()).await;
    diary.paths.push(format!("{path}/deliveries/{delivery}"));
    diary.note().await;
    let seen = diary.seen.pop().unwrap();
    let then = admin.get(&format!("{}?at={}", seen.path, seen.position)).await.expect(200);
    assert_eq!(then, seen.body);
    diary.paths.pop();
    admin.delete(&path).await.expect(200);
    diary.note().await;
    diary.check().await;
    world.finish_with_mail().await;
}
