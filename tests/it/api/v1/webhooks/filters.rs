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
    assert_eq!(webhook["filters"], json!({"channels": [one], "labels": {}, "jobs": [], "severity": []}));
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
    assert_eq!(changed["filters"], json!({"channels": [], "labels": {}, "jobs": [], "severity": []}));
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
async fn a_filter_of_labels_asks_for_those_at_the_time_of_the_event() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let labelled = async |name: &str, labels: Value| {
        let event = json!({"name": name, "type": "sensor", "labels": labels});
        world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone()
    };
    let one = labelled("one", json!({"line": "1", "room": "north"})).await;
    let two = labelled("two", json!({"line": "1"})).await;
    let three = labelled("three", json!({"line": "2", "room": "north"})).await;
    let body = json!({"url": receiver.url(), "events": ["sensor.reading"],
        "filters": {"labels": {"room": "north", "line": "1"}}});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    assert_eq!(webhook["filters"]["labels"], json!({"line": "1", "room": "north"}));
    for event in [&three, &two, &one] {
        measure(&world, event).await;
    }
    let got = receiver.until_got(1).await;
    assert_eq!(got[0].json()["sensor_id"], one);
    // Now it is the second one that has the labels: past events are judged by those of their time.
    for (event, labels) in [(&one, json!({})), (&two, json!({"line": "1", "room": "north"}))] {
        let path = format!("/api/v1/events/{}", event.as_str().unwrap());
        world.admin.put(&path, json!({ "labels": labels })).await.expect(200);
    }
    let dry_run = format!("{}/dry-run", path(&webhook));
    let dry = world.admin.post(&dry_run, json!({})).await.expect(200);
    assert_eq!((&dry["matched"], &dry["data"][0]["event_id"]), (&json!(1), &got[0].json()["id"]));
    let other = json!({"url": receiver.url_of("late"), "events": ["sensor.reading"],
        "filters": {"labels": {"line": "1"}}});
    let other = world.admin.post(WEBHOOKS, other).await.expect(201);
    let replay = json!({"from": "2020-01-01T00:00:00Z"});
    world.admin.post(&format!("{}/replay", path(&other)), replay).await.expect(202);
    let got = receiver.until_got(3).await;
    let mut late: Vec<_> = got[1..].iter().map(|got| got.json()["sensor"].clone()).collect();
    late.sort_by_key(Value::to_string);
    assert_eq!(late, [json!("one"), json!("two")]);
    world.finish().await;
}

#[tokio::test]
async fn a_filter_of_severity_limits_alarms() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let event = channel(&world, "boiler").await;
    for severity in ["info", "warning", "critical"] {
        let rule = json!({"name": severity, "event_public_id": event, "operator": "gt", "threshold": 0,
            "action_type": "log", "alarm": true, "severity": severity});
        world.admin.post("/api/v1/rules", rule).await.expect(201);
    }
    let body = json!({"url": receiver.url(), "events": ["alarm.firing", "experiment.started"],
        "filters": {"severity": ["critical", "info", "critical"]}});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    assert_eq!(webhook["filters"]["severity"], json!(["info", "critical"]));
    measure(&world, &event).await;
    start_experiment(&world, "e").await;
    let got = receiver.until_got(3).await;
    let mut severities: Vec<_> = got.iter().map(|got| got.json()["severity"].clone()).collect();
    severities.sort_by_key(Value::to_string);
    assert_eq!(severities, [json!("critical"), json!("info"), json!(null)]);
    let dry_run = format!("{}/dry-run", path(&webhook));
    assert_eq!(world.admin.post(&dry_run, json!({})).await.expect(200)["matched"], 3);
    assert_eq!(receiver.got().len(), 3);
    world.finish().await;
}

#[tokio::test]
async fn filters_that_are_not_known_are_refused() {
    let world = World::start().await;
    for filters in [
        json!({"channels": ["boiler"]}),
        json!({"jobs": ["1"]}),
        json!({"jobs": (0..=100).collect::<Vec<_>>()}),
        json!({"labels": ["line"]}),
        json!({"labels": {"line": 1}}),
        json!({"labels": {"1st": "x"}}),
        json!({"labels": {"line": "x".repeat(256)}}),
        json!({"labels": (0..=20).map(|number| (format!("k{number}"), json!(""))).collect::<serde_json::Map<_, _>>()}),
        json!({"severity": "critical"}),
        json!({"severity": ["fatal"]}),
        json!([]),
    ] {
        let body = json!({"url": "https://example.org/", "events": ["log.entry"], "filters": filters});
        world.admin.post(WEBHOOKS, body).await.error(422);
    }
    world.finish().await;
}

#[tokio::test]
async fn filters_name_channels_and_jobs_that_exist_and_other_fields_are_ignored() {
    let world = World::start().await;
    let (one, gone) = (channel(&world, "one").await, channel(&world, "gone").await);
    let with =
        |filters: Value| json!({"url": "https://example.org/", "events": ["log.entry"], "filters": filters});
    let stranger = "01890000-0000-7000-8000-000000000000";
    let made = world
        .admin
        .post(WEBHOOKS, with(json!({"channels": [one, gone], "colour": ["red"]})))
        .await
        .expect(201);
    assert_eq!(made["filters"]["channels"].as_array().unwrap().len(), 2);
    for (filters, pointer) in [
        (json!({"channels": [one, stranger]}), "/filters/channels/1"),
        (json!({"jobs": [-1]}), "/filters/jobs/0"),
        (json!({"jobs": [4711]}), "/filters/jobs/0"),
    ] {
        let mut new = with(filters.clone());
        new["url"] = json!("https://example.org/other");
        for refused in [
            world.admin.post(WEBHOOKS, new).await,
            world.admin.put(&path(&made), json!({ "filters": filters })).await,
        ] {
            let problem = refused.expect(404);
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
    }
    // A deleted channel may stay.
    world.admin.delete(&format!("/api/v1/events/{}", gone.as_str().unwrap())).await.expect(200);
    world.admin.put(&path(&made), json!({"filters": {"channels": [one, gone]}})).await.expect(200);
    world.finish().await;
}
