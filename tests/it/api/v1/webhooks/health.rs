//! The service tells how it is.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::subscribe;
use crate::harness::{Receiver, World, eventually, seconds};

#[tokio::test]
async fn an_outage_of_the_bus_is_told_once_when_it_is_over() {
    let mut world = World::with_own_bus(|_| {}).await;
    // Another process that watches too.
    world.another_process().await.work().await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &["system.health_changed"]).await;
    // Its state at the start is no change. It has to be known before it can change.
    sleep(Duration::from_secs(7)).await;
    assert_eq!(world.count_events("health_changed").await, 0);
    world.servers.nats.kill().await;
    let is_degraded = async || world.anonymous().get("/health").await.text().contains("degraded");
    eventually(seconds(10), is_degraded).await;
    // It has to stay so for five seconds, without a slow answer of the database in between.
    sleep(Duration::from_secs(12)).await;
    world.servers.nats.restart().await;
    let mut told: Vec<_> = receiver.until_got(2).await.iter().map(|got| got.json()).collect();
    told.sort_by_key(|told| told["time"].as_str().unwrap().to_owned());
    assert_eq!((&told[0]["status"], &told[0]["previous"]), (&json!("degraded"), &json!("ok")));
    assert_eq!(told[0]["components"], json!({"broker": "error", "database": "ok"}));
    assert_eq!((&told[1]["status"], &told[1]["previous"]), (&json!("ok"), &json!("degraded")));
    eventually(seconds(10), async || {
        let page = world.admin.get("/api/v1/logging?source=health").await.expect(200);
        page["total"] == 2
    })
    .await;
    assert_eq!(world.count_events("health_changed").await, 2);
    world.finish().await;
}
