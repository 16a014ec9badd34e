//! The service publishes changes of its health.

use std::time::Duration;

use serde_json::json;
use signalbox_database::{clear_fault, report_fault};
use tokio::time::sleep;

use super::subscribe;
use crate::harness::{Receiver, World, eventually, seconds};

#[tokio::test]
async fn an_outage_of_the_bus_is_published_once_when_it_is_over() {
    let mut world = World::with_own_bus(|_| {}).await;
    // Another process that watches too.
    world.another_process().await.work().await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["system.health_changed"]).await;
    // The state at the start is not published. It has to be known before it can change.
    sleep(Duration::from_secs(7)).await;
    assert_eq!(world.count_events("health_changed").await, 0);
    world.servers.nats.kill().await;
    let is_degraded = async || world.anonymous().get("/health").await.text().contains("degraded");
    eventually(seconds(10), is_degraded).await;
    // It has to stay so for five seconds, without a slow answer of the database in between.
    sleep(Duration::from_secs(12)).await;
    world.servers.nats.restart().await;
    let mut reports: Vec<_> = receiver.until_got(2).await.iter().map(|got| got.json()).collect();
    reports.sort_by_key(|report| report["time"].as_str().unwrap().to_owned());
    assert_eq!((&reports[0]["status"], &reports[0]["previous"]), (&json!("degraded"), &json!("ok")));
    assert_eq!(reports[0]["components"], json!({"broker": "error", "database": "ok"}));
    assert_eq!((&reports[1]["status"], &reports[1]["previous"]), (&json!("ok"), &json!("degraded")));
    eventually(seconds(10), async || {
        let page = world.admin.get("/api/v1/logging?source=health").await.expect(200);
        page["total"] == 2
    })
    .await;
    assert_eq!(world.count_events("health_changed").await, 2);
    world.finish().await;
}

#[tokio::test]
async fn a_fault_of_any_part_changes_the_health() {
    let world = World::with_own_bus(|_| {}).await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["system.health_changed"]).await;
    // The state at the start is not published: it is known when it has held for five seconds.
    eventually(seconds(60), async || {
        let health = world.anonymous().get("/health").await.expect(200);
        health["uptime_seconds"].as_f64().unwrap() > 8.0
    })
    .await;
    report_fault(&world.servers.pool, "disk.elsewhere", "2 MiB are free").await.unwrap();
    let report = receiver.until_got(1).await[0].json();
    assert_eq!((&report["status"], &report["previous"]), (&json!("degraded"), &json!("ok")));
    let components = json!({"broker": "ok", "database": "ok", "disk.elsewhere": "error"});
    assert_eq!(report["components"], components);
    assert_eq!(world.anonymous().get("/health").await.expect(200)["status"], "degraded");
    assert!(clear_fault(&world.servers.pool, "disk.elsewhere").await.unwrap());
    let report = receiver.until_got(2).await[1].json();
    assert_eq!((&report["status"], &report["previous"]), (&json!("ok"), &json!("degraded")));
    assert_eq!(report["components"], json!({"broker": "ok", "database": "ok"}));
    assert_eq!(world.count_events("health_changed").await, 2);
    world.finish().await;
}
