//! Filters of subscriptions.

use serde_json::{Value, json};

use super::{WEBHOOKS, path, start_experiment};
use crate::harness::{Receiver, World};

async fn channel(world: &World, name: &str) -> Value {
    let event = json!({"name": name, "type": "sensor"});
    world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone()
}

async fn measure(world: &World, event: &Value) {
    let datapoint = json!({"value": 1, "event_public_id": event});
    world.admin.post("/api/v1/datapoints", datapoint).await.expect(201);
}

#[tokio::test]
async fn a_filter_of_channels_leaves_other_kinds_of_events_alone() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let (one, two) = (channel(&world, "one").await, channel(&world, "two").await);
    let body = json!({"url": receiver.url(), "events": ["sensor.reading", "experiment.started"],
        "filters": {"channels": [one, one]}});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    assert_eq!(webhook["filters"], json!({"channels": [one], "jobs": []}));
    measure(&world, &two).await;
    measure(&world, &one).await;
    start_experiment(&world, "e").await;
    let got = receiver.until_got(2).await;
    let mut sensors: Vec<_> = got.iter().map(|got| got.json()["sensor"].clone()).collect();
    sensors.sort_by_key(Value::to_string);
    assert_eq!(sensors, [json!("one"), json!(null)]);
    // A dry run has the same filter, and a changed one is in force at once.
    let dry_run = format!("{}/dry-run", path(&webhook));
    assert_eq!(world.admin.post(&dry_run, json!({})).await.expect(200)["matched"], 2);
    let changed = world.admin.put(&path(&webhook), json!({"filters": {}})).await.expect(200);
    assert_eq!(changed["filters"], json!({"channels": [], "jobs": []}));
    assert_eq!(world.admin.post(&dry_run, json!({})).await.expect(200)["matched"], 3);
    assert_eq!(receiver.got().len(), 2);
    world.finish().await;
}

#[tokio::test]
async fn a_filter_of_jobs_limits_transfers() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let (from, to) = (world.agent("a").await, world.agent("b").await);
    let job = async |name: &str| {
        let job = json!({"name": name, "source_agent_id": from.id, "destination_agent_id": to.id,
            "source_path": "/a", "destination_path": "/b"});
        world.admin.post("/api/jobs", job).await.id()
    };
    let (one, two) = (job("one").await, job("two").await);
    let body = json!({"url": receiver.url(), "events": ["transfer.cancelled"], "filters": {"jobs": [two]}});
    world.admin.post(WEBHOOKS, body).await.expect(201);
    let alone = world.transfer(&from, &to, "/a", "/b").await;
    let mut transfers = vec![alone];
    for job in [one, two] {
        transfers.push(world.admin.post(&format!("/api/jobs/{job}/run"), json!({})).await.id());
    }
    for transfer in &transfers {
        world.admin.post(&format!("/api/transfers/{transfer}/cancel"), json!({})).await.expect(200);
    }
    let got = receiver.until_got(1).await;
    assert_eq!(
        (&got[0].json()["job_id"], &got[0].json()["transfer_id"]),
        (&json!(two), &json!(transfers[2]))
    );
    world.finish_with_mail().await;
}

#[tokio::test]
async fn filters_that_are_not_known_are_refused() {
    let world = World::start().await;
    for filters in [
        json!({"channels": ["boiler"]}),
        json!({"jobs": ["1"]}),
        json!({"jobs": (0..=100).collect::<Vec<_>>()}),
        json!({"colour": ["red"]}),
        json!([]),
    ] {
        let body = json!({"url": "https://example.org/", "events": ["log.entry"], "filters": filters});
        world.admin.post(WEBHOOKS, body).await.error(422);
    }
    world.finish().await;
}
