//! The metrics that Prometheus scrapes.

use chrono::TimeDelta;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use crate::harness::{Behaviour, Client, Receiver, Separate, World, eventually, eventually_some, seconds};

/// The value of metric `name`, with its labels, in a process's metrics.
fn number(text: &str, name: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .and_then(|value| value.parse().ok())
}

/// The number `name`; a gateway that is asked by many leaves out what takes too long.
async fn read(client: &Client, name: &str) -> f64 {
    eventually_some(seconds(10), async || number(&client.get("/metrics").await.text(), name)).await
}

#[tokio::test]
async fn an_admin_reads_numbers_about_the_process_and_the_installation() {
    let world = World::start().await;
    let admin = world.at_one_gateway();
    let read = async || {
        let answer = admin.get("/metrics").await;
        assert_eq!(
            answer.header("content-type"),
            Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
        );
        answer.text()
    };
    let done = [
        "signalbox_http_request_duration_seconds_count{method=\"POST\",route=\"/api/agents\",status=\"201\"}",
        "signalbox_command_duration_seconds_count{context=\"transfer\",outcome=\"done\"}",
        "signalbox_append_commands_count",
        "signalbox_events_appended_total",
        "signalbox_log_position",
    ];
    let mut agents = 0;
    // Another process may carry out the first commands.
    eventually(seconds(10), async || {
        agents += 1;
        admin.post("/api/agents", json!({"name": format!("press {agents}")})).await.expect(201);
        let text = read().await;
        done.iter().all(|name| number(&text, name) >= Some(1.0))
    })
    .await;
    let text = read().await;
    for kind in ["transfer", "webhook_delivery", "extraction", "firmware"] {
        assert_eq!(number(&text, &format!("signalbox_outstanding_work{{work=\"{kind}\"}}")), Some(0.0));
    }
    // While a mailbox has no leader, its content is unknown.
    let mail = "signalbox_mailbox_messages";
    eventually(seconds(10), async || number(&read().await, mail) == Some(0.0)).await;
    // Stored positions of read models follow when they rest.
    let lag = "signalbox_projection_lag_events{projection=\"transfer\"}";
    eventually(seconds(10), async || number(&read().await, lag) == Some(0.0)).await;
    world.finish().await;
}

#[tokio::test]
async fn numbers_are_for_admins_and_made_up_paths_are_counted_together() {
    let world = World::start().await;
    let viewer = world.user("viewer", "viewer").await;
    let admin = world.at_one_gateway();
    viewer.get("/metrics").await.expect(403);
    let anonymous = admin.anonymous();
    anonymous.get("/metrics").await.expect(401);
    anonymous.get("/made/up/by-a-stranger").await.expect(404);
    let text = admin.get("/metrics").await.text();
    assert!(text.contains("route=\"none\",status=\"404\""), "{text}");
    assert!(!text.contains("by-a-stranger"), "{text}");
    world.finish().await;
}

#[tokio::test]
async fn every_gateway_reports_the_same_work_and_ages() {
    let mut world = World::at(Clock::manual(Clock::system().now()), |_| {}).await;
    let other = world.another_gateway().await;
    let other = world.admin.at(&other);
    let (from, to) = (world.agent("from").await, world.agent("to").await);
    let first = world.transfer(&from, &to, "/a", "/b").await;
    world.clock.advance(TimeDelta::seconds(90));
    let second = world.transfer(&from, &to, "/c", "/d").await;
    let (waiting, oldest) = (
        "signalbox_outstanding_work{work=\"transfer\"}",
        "signalbox_oldest_outstanding_work_seconds{work=\"transfer\"}",
    );
    for gateway in [&world.admin, &other] {
        assert_eq!((read(gateway, waiting).await, read(gateway, oldest).await), (2.0, 90.0));
        // The agent has not received its requests.
        let mail = async || read(gateway, "signalbox_mailbox_messages").await == 2.0;
        eventually(seconds(20), mail).await;
    }
    for (id, left, age) in [(first, 1.0, 0.0), (second, 0.0, 0.0)] {
        world.admin.post(&format!("/api/transfers/{id}/cancel"), json!({})).await.expect(200);
        for gateway in [&world.admin, &other] {
            assert_eq!((read(gateway, waiting).await, read(gateway, oldest).await), (left, age));
        }
    }
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_read_model_that_stands_still_is_reported_as_lagging() {
    let world = World::start().await;
    let lag = "signalbox_projection_lag_events{projection=\"transfer\"}";
    eventually(seconds(10), async || read(&world.admin, lag).await == 0.0).await;
    let agents = [world.agent("a").await, world.agent("b").await];
    let mut held = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
    sqlx::query("SELECT FROM read.checkpoints WHERE projection = 'transfer' FOR UPDATE")
        .execute(&mut *held)
        .await
        .unwrap();
    let impatient = world.at_one_gateway();
    for agent in &agents {
        let late = impatient.delete(&format!("/api/agents/{}", agent.id)).await;
        assert_eq!((late.status, late.header("consistency")), (204, Some("eventual")));
    }
    assert!(read(&world.admin, lag).await >= 2.0);
    held.rollback().await.unwrap();
    eventually(seconds(10), async || read(&world.admin, lag).await == 0.0).await;
    for name in [
        "signalbox_follower_lag_events{follower=\"events\"}",
        "signalbox_follower_lag_events{follower=\"webhooks\"}",
        "signalbox_datapoint_lag{reader=\"series\"}",
        "signalbox_datapoint_lag{reader=\"rules\"}",
    ] {
        eventually(seconds(10), async || read(&world.admin, name).await == 0.0).await;
    }
    world.finish().await;
}

#[tokio::test]
async fn datapoints_not_seen_by_any_worker_are_reported() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let event = json!({"name": "boiler", "type": "sensor"});
    let event = world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone();
    let value = json!({"event_public_id": event, "value": 1});
    let batch = json!({"datapoints": [value, value, value]});
    world.admin.post("/api/v1/datapoints/batch", batch).await.expect(201);
    assert_eq!(read(&world.admin, "signalbox_datapoint_lag{reader=\"rules\"}").await, 3.0);
    // The read model follows by itself.
    let series = "signalbox_datapoint_lag{reader=\"series\"}";
    eventually(seconds(20), async || read(&world.admin, series).await == 0.0).await;
    world.finish().await;
}

#[tokio::test]
async fn each_process_counts_what_it_does_and_nothing_else() {
    let mut service = Separate::start(&[]).await;
    let (well, dead) = (Receiver::start().await, Receiver::with(None, Behaviour::Answer(500)).await);
    let mut webhooks = Vec::new();
    for receiver in [&well, &dead] {
        let webhook = json!({"url": receiver.url(), "events": ["experiment.started"]});
        webhooks.push(service.admin.post("/api/v1/webhooks", webhook).await.expect(201));
    }
    service.admin.post("/api/v1/experiments", json!({"name": "a"})).await.expect(201);
    let deliveries = format!("/api/v1/webhooks/{}/deliveries", webhooks[1]["public_id"].as_str().unwrap());
    let given_up = eventually_some(seconds(60), async || {
        let newest: Value = service.admin.get(&deliveries).await.expect(200)["data"][0].clone();
        (newest["status"] == "dead_letter").then_some(newest)
    });
    let attempts = given_up.await["attempts"].as_f64().unwrap();
    let ended = "signalbox_webhook_deliveries_total{outcome=\"dead_letter\"}";
    let is_counted = async || number(&service.metrics("workers").await, ended) == Some(1.0);
    eventually(seconds(20), is_counted).await;
    let workers = service.metrics("workers").await;
    for (name, expected) in [
        ("signalbox_webhook_deliveries_total{outcome=\"delivered\"}", 1.0),
        ("signalbox_webhook_attempt_duration_seconds_count{outcome=\"delivered\"}", 1.0),
        ("signalbox_webhook_attempt_duration_seconds_count{outcome=\"failed\"}", attempts),
    ] {
        assert_eq!(number(&workers, name), Some(expected), "{name} in\n{workers}");
    }
    let commands = service.metrics("commands").await;
    assert_eq!(number(&commands, "signalbox_queue_depth{queue=\"append\"}"), Some(0.0));
    assert!(number(&commands, "signalbox_events_appended_total") > Some(5.0), "{commands}");
    assert_eq!(number(&workers, "signalbox_events_appended_total"), Some(0.0), "{workers}");
    for text in [&commands, &workers] {
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        let silent: Vec<_> = names.filter(|name| !text.contains(&format!("# HELP {name} "))).collect();
        assert!(silent.is_empty(), "{silent:?} have no help");
    }
    assert!(service.stop().await.iter().all(|(_, status)| status.success()));
}
