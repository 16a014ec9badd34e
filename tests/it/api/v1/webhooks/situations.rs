//! Every type of the catalogue is sent in its situation, and nothing else is sent.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::TimeDelta;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_database::report_fault;

use super::{WEBHOOKS, start_experiment, stop_experiment, subscribe};
use crate::{
    api::v1::{alarms, datapoints::event, documents, ota, rules},
    harness::{FileFlux, Folder, Got, Habits, Receiver, World, eventually, seconds},
};

fn sorted(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut values: Vec<_> = values.collect();
    values.sort_by_key(Value::to_string);
    values
}

/// The bodies that came, by their types.
fn by_type(got: &[Got]) -> BTreeMap<String, Vec<Value>> {
    let mut bodies = BTreeMap::<_, Vec<_>>::new();
    for body in got.iter().map(Got::json) {
        bodies.entry(body["type"].as_str().unwrap().to_owned()).or_default().push(body);
    }
    bodies
}

async fn until_count(receiver: &Receiver, kind: &str, count: usize) {
    eventually(seconds(30), async || by_type(&receiver.got()).get(kind).map_or(0, Vec::len) >= count).await;
}

/// A value that fires a rule and an alarm, which is acknowledged and cleared.
async fn sensors(world: &World, receiver: &Receiver) {
    let boiler = event(world, "boiler").await;
    let mut rule = rules::above_10("hot", &boiler);
    (rule["action_type"], rule["webhook_event_type"]) =
        (json!("webhook"), json!("sensor.threshold_exceeded"));
    rules::create(world, rule).await;
    alarms::rule(world, &boiler, json!({})).await;
    rules::send(&world.admin, &boiler, [11.0]).await;
    let alarm = alarms::until(world, "firing").await;
    world.admin.post(&format!("{}/acknowledge", alarms::path(&alarm)), json!({})).await.expect(200);
    until_count(receiver, "sensor.reading", 1).await;
    world.clock.advance(TimeDelta::seconds(6));
    rules::send(&world.admin, &boiler, [9.0]).await;
    alarms::until(world, "cleared").await;
    until_count(receiver, "sensor.reading", 2).await;
}

/// Transfers that end in each way, by two agents that then leave for more than a minute.
async fn transfers(world: &World, receiver: &Receiver) {
    let (from, to) = (world.agent("source").await, world.agent("destination").await);
    let cancelled = world.transfer(&from, &to, "/nowhere", "/anywhere").await;
    world.admin.post(&format!("/api/transfers/{cancelled}/cancel"), json!({})).await.expect(200);
    let (source, target) = (Arc::new(Folder::new()), Arc::new(Folder::new()));
    source.write("a.csv", "1,2,3");
    let agents = [
        FileFlux::websocket(world.as_agent(&from), source.clone(), Habits::default()).await,
        FileFlux::websocket(world.as_agent(&to), target.clone(), Habits::default()).await,
    ];
    world.transfer(&from, &to, &source.text("a.csv"), &target.text("b.csv")).await;
    let job = json!({"name": "nightly", "source_agent_id": from.id, "destination_agent_id": to.id,
        "source_path": source.text("missing"), "destination_path": target.text("c"),
        "retry": {"max_attempts": 1, "backoff_seconds": 0}});
    let job = world.admin.post("/api/jobs", job).await.id();
    world.admin.post(&format!("/api/jobs/{job}/run"), json!({})).await.id();
    for kind in ["transfer.completed", "transfer.failed", "transfer.cancelled"] {
        until_count(receiver, kind, 1).await;
    }
    until_count(receiver, "agent.online", 2).await;
    agents.into_iter().for_each(FileFlux::stop);
    for agent in [&from, &to] {
        world.until_agent(agent, "offline").await;
    }
    world.clock.advance(TimeDelta::seconds(61));
    until_count(receiver, "agent.offline", 2).await;
}

async fn documents(world: &World) {
    documents::send(&world.admin, "/api/v1/jobs", "a.txt", b"words of the document").await.expect(202);
    documents::send(&world.admin, "/api/v1/jobs", "a.pdf", &documents::sample("truncated.pdf"))
        .await
        .expect(202);
}

async fn firmware(world: &World) {
    ota::in_force(world, "1.2.0").await;
    let id = ota::announced(world, "1.3.0", "http://127.0.0.1:9/firmware.tar.gz").await;
    ota::apply(&world.admin, &id).await.expect(202);
    ota::until_status(&world.admin, &id, "failed").await;
}

/// A part of the service that does not work, for longer than a moment.
async fn health(world: &World, receiver: &Receiver) {
    report_fault(&world.servers.pool, "disk.elsewhere", "it is full").await.unwrap();
    eventually(seconds(60), async || {
        world.clock.advance(TimeDelta::seconds(1));
        let changes = by_type(&receiver.got()).remove("system.health_changed").unwrap_or_default();
        changes.iter().any(|change| change["components"]["disk.elsewhere"] == "error")
    })
    .await;
}

#[tokio::test]
async fn every_type_is_sent_in_its_situation() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock, |config| config.extraction.parsers = 1).await;
    let receiver = Receiver::start().await;
    let catalogue = world.admin.get(&format!("{WEBHOOKS}/event-types")).await.expect(200);
    let types: BTreeSet<_> =
        catalogue["data"].as_array().unwrap().iter().map(|entry| entry["type"].as_str().unwrap()).collect();
    subscribe(&world, &receiver, &Vec::from_iter(types.clone())).await;
    let experiment = start_experiment(&world, "e").await;
    stop_experiment(&world, &experiment).await;
    let entry = json!({"type": "error", "content": "the belt has torn", "source": "press"});
    world.admin.post("/api/v1/logging", entry).await.expect(201);
    documents(&world).await;
    sensors(&world, &receiver).await;
    transfers(&world, &receiver).await;
    firmware(&world).await;
    health(&world, &receiver).await;
    let mut bodies = BTreeMap::new();
    eventually(seconds(30), async || {
        bodies = by_type(&receiver.got());
        bodies.len() == types.len()
    })
    .await;
    assert_eq!(bodies.keys().map(String::as_str).collect::<BTreeSet<_>>(), types);
    assert!(receiver.got().iter().all(|got| got.refused.is_none()));
    let of = |kind: &str, field: &str| sorted(bodies[kind].iter().map(|body| body[field].clone()));
    // Errors of the service are entries too, and a busy machine adds some; none of them is about deliveries.
    eventually(seconds(30), async || {
        let errors = world.admin.get("/api/v1/logging?type=error&page_size=100").await.expect(200);
        let entries = errors["data"].as_array().unwrap().iter();
        let sent = by_type(&receiver.got()).remove("log.entry").unwrap();
        sorted(entries.map(|entry| entry["public_id"].clone()))
            == sorted(sent.iter().map(|body| body["entry_id"].clone()))
    })
    .await;
    assert_eq!(of("sensor.reading", "value"), [json!(11.0), json!(9.0)]);
    assert_eq!(of("agent.online", "agent_name"), [json!("destination"), json!("source")]);
    assert_eq!(of("agent.offline", "agent_name"), [json!("destination"), json!("source")]);
    let is_of_disk = |components: &Value| components["disk.elsewhere"] == "error";
    assert!(of("system.health_changed", "components").iter().any(is_of_disk));
    // A busy machine may have other faults, too.
    let several = ["log.entry", "sensor.reading", "agent.online", "agent.offline", "system.health_changed"];
    let counts = bodies.iter().filter(|(kind, _)| !several.contains(&kind.as_str()));
    let repeated: Vec<_> = counts.filter(|(_, bodies)| bodies.len() != 1).collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    world.finish_with_mail().await;
}
