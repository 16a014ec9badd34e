//! The types of events, and the catalogue of them.

use std::{collections::HashMap, sync::Arc};

use chrono::TimeDelta;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{WEBHOOKS, subscribe};
use crate::harness::{Behaviour, FileFlux, Folder, Got, Habits, Receiver, World, eventually_some, seconds};

/// The schemas of the catalogue.
async fn catalogue(world: &World) -> HashMap<String, Value> {
    let types = world.admin.get(&format!("{WEBHOOKS}/event-types")).await.expect(200);
    let types = types["data"].as_array().unwrap().clone();
    types.into_iter().map(|entry| (entry["type"].as_str().unwrap().to_owned(), entry)).collect()
}

/// Fails unless the body of `got` conforms to the schema of its type; returns the body.
fn conforming(catalogue: &HashMap<String, Value>, got: &Got) -> Value {
    let body = got.json();
    let entry = &catalogue[body["type"].as_str().unwrap()];
    let schema = jsonschema::draft202012::new(&entry["schema"]).unwrap();
    let faults: Vec<_> = schema.iter_errors(&body).map(|fault| fault.to_string()).collect();
    assert!(got.refused.is_none() && faults.is_empty(), "{body}: {faults:?}");
    body
}

/// Waits for an event of `kind` that meets the condition; returns its body.
async fn until(receiver: &Receiver, kind: &str, mut is_so: impl FnMut(&Value) -> bool) -> Value {
    eventually_some(seconds(30), async || {
        let bodies = receiver.got().into_iter().map(|got| got.json());
        bodies.into_iter().find(|body| body["type"] == kind && is_so(body))
    })
    .await
}

#[tokio::test]
async fn the_catalogue_has_a_schema_and_an_example_of_each_type() {
    let world = World::start().await;
    let catalogue = catalogue(&world).await;
    assert_eq!(catalogue.len(), 18);
    for (name, entry) in &catalogue {
        let schema = jsonschema::draft202012::new(&entry["schema"]).unwrap();
        assert!(schema.is_valid(&entry["example"]), "{entry}");
        assert_eq!(entry["example"]["type"], json!(name));
        assert!(entry["description"].as_str().unwrap().len() > 10);
        // Each of them can be subscribed to.
        let body = json!({"url": format!("https://example.org/{name}"), "events": [name]});
        world.admin.post(WEBHOOKS, body).await.expect(201);
    }
    let unknown = json!({"url": "https://example.org/", "events": ["alarm.ringing"]});
    world.admin.post(WEBHOOKS, unknown).await.error(422);
    world.user("operator", "operator").await.get(&format!("{WEBHOOKS}/event-types")).await.error(403);
    world.finish().await;
}

#[tokio::test]
async fn transfers_publish_how_they_end() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["transfer.completed", "transfer.failed", "transfer.cancelled"]).await;
    let (from, to) = (world.agent("source").await, world.agent("destination").await);
    let cancelled = world.transfer(&from, &to, "/nowhere", "/anywhere").await;
    world.admin.post(&format!("/api/transfers/{cancelled}/cancel"), json!({})).await.expect(200);
    let (source, target) = (Arc::new(Folder::new()), Arc::new(Folder::new()));
    source.write("a.csv", "1,2,3");
    let agents = [
        FileFlux::websocket(world.as_agent(&from), source.clone(), Habits::default()).await,
        FileFlux::websocket(world.as_agent(&to), target.clone(), Habits::default()).await,
    ];
    let completed = world.transfer(&from, &to, &source.text("a.csv"), &target.text("b.csv")).await;
    let job = json!({"name": "nightly", "source_agent_id": from.id, "destination_agent_id": to.id,
        "source_path": source.text("missing"), "destination_path": target.text("c"),
        "retry": {"max_attempts": 1, "backoff_seconds": 0}});
    let job = world.admin.post("/api/jobs", job).await.id();
    let failed = world.admin.post(&format!("/api/jobs/{job}/run"), json!({})).await.id();
    let got = receiver.until_got(3).await;
    let catalogue = catalogue(&world).await;
    let mut bodies: Vec<_> = got.iter().map(|got| conforming(&catalogue, got)).collect();
    bodies.sort_by_key(|body| body["transfer_id"].as_i64());
    let shown: Vec<_> =
        bodies.iter().map(|body| (&body["type"], &body["transfer_id"], &body["job_id"])).collect();
    let expected = [
        (json!("transfer.cancelled"), json!(cancelled), json!(null)),
        (json!("transfer.completed"), json!(completed), json!(null)),
        (json!("transfer.failed"), json!(failed), json!(job)),
    ];
    assert_eq!(shown, expected.iter().map(|(kind, id, job)| (kind, id, job)).collect::<Vec<_>>());
    assert_eq!((&bodies[1]["size_bytes"], &bodies[1]["files"]), (&json!(5), &json!(1)));
    assert!(bodies[1]["sha256"].is_string() && bodies[2]["error"].is_string(), "{bodies:?}");
    agents.into_iter().for_each(FileFlux::stop);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn an_agent_is_offline_when_it_has_been_away_for_a_minute() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["agent.online", "agent.offline"]).await;
    let account = world.agent("press").await;
    let connect = async || {
        FileFlux::websocket(world.as_agent(&account), Arc::new(Folder::new()), Habits::default()).await
    };
    let agent = connect().await;
    let online = until(&receiver, "agent.online", |_| true).await;
    assert_eq!((&online["agent_id"], &online["agent_name"]), (&json!(account.id), &json!("press")));
    assert_eq!(online["transport"], "websocket");
    // Back within the minute: no event is published.
    agent.stop();
    world.until_agent(&account, "offline").await;
    clock.advance(TimeDelta::seconds(30));
    let agent = connect().await;
    world.until_agent(&account, "online").await;
    agent.stop();
    world.until_agent(&account, "offline").await;
    let left = clock.now();
    clock.advance(TimeDelta::seconds(61));
    let offline = until(&receiver, "agent.offline", |_| true).await;
    let since: chrono::DateTime<chrono::Utc> = offline["since"].as_str().unwrap().parse().unwrap();
    assert!((left - since).abs() < TimeDelta::seconds(5), "{offline}");
    let agent = connect().await;
    until(&receiver, "agent.online", |body| body["id"] != online["id"]).await;
    let catalogue = catalogue(&world).await;
    let got = receiver.got();
    got.iter().for_each(|got| drop(conforming(&catalogue, got)));
    assert_eq!(got.len(), 3, "{got:?}");
    agent.stop();
    world.finish_with_mail().await;
}

#[tokio::test]
async fn errors_in_the_log_are_published_and_those_about_deliveries_are_not() {
    let world = World::start().await;
    let (receiver, broken) = (Receiver::start().await, Receiver::with(None, Behaviour::Answer(500)).await);
    subscribe(&world, &receiver, &["log.entry"]).await;
    subscribe(&world, &broken, &["log.entry"]).await;
    let write = async |kind: &str, content: &str| {
        let entry = json!({"type": kind, "content": content, "source": "press"});
        world.admin.post("/api/v1/logging", entry).await.expect(201)["public_id"].clone()
    };
    write("warning", "nearly").await;
    let id = write("error", "broken").await;
    let body = until(&receiver, "log.entry", |_| true).await;
    assert_eq!(
        (&body["entry_id"], &body["content"], &body["source"]),
        (&id, &json!("broken"), &json!("press"))
    );
    // The delivery to the other one is given up, which makes an error in the log.
    eventually_some(seconds(30), async || {
        let page = world.admin.get("/api/v1/logging?source=webhooks").await.expect(200);
        (page["total"] == 1).then_some(())
    })
    .await;
    broken.behave(Behaviour::Accept);
    let later = write("error", "again").await;
    let next = until(&receiver, "log.entry", |body| body["content"] != "broken").await;
    assert_eq!(next["entry_id"], later);
    let catalogue = catalogue(&world).await;
    receiver.got().iter().for_each(|got| drop(conforming(&catalogue, got)));
    world.finish().await;
}

#[tokio::test]
async fn a_new_rule_publishes_the_types_of_the_specification_alone() {
    let world = World::start().await;
    let event = json!({"name": "boiler", "type": "sensor"});
    let event = world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone();
    let rule = |name: &str, kind: &str| {
        json!({"name": name, "event_public_id": event, "operator": "gt", "threshold": 80,
            "action_type": "webhook", "webhook_event_type": kind})
    };
    for kind in ["transfer.failed", "log.entry", "extraction.failed", "alarm.firing"] {
        world.admin.post("/api/v1/rules", rule("r", kind)).await.error(422);
    }
    let made = world.admin.post("/api/v1/rules", rule("r", "experiment.started")).await.expect(201);
    let path = format!("/api/v1/rules/{}", made["public_id"].as_str().unwrap());
    world.admin.put(&path, json!({"webhook_event_type": "log.entry"})).await.error(422);
    world.admin.put(&path, json!({"webhook_event_type": "sensor.reading"})).await.expect(200);
    world.finish().await;
}
