//! Webhook subscriptions, and the delivery of their events.

mod crashing;
mod delivering;
mod events;
mod filters;
mod health;
mod hostile;
mod libraries;
mod limits;
mod managing;
mod readings;
mod redelivering;
mod retrying;
mod sharing;
mod signing;
mod situations;
mod trials;
mod unreadable;

use serde_json::{Value, json};

use crate::harness::{Receiver, World, eventually_some, seconds};

pub const WEBHOOKS: &str = "/api/v1/webhooks";

pub fn path(webhook: &Value) -> String {
    format!("{WEBHOOKS}/{}", webhook["public_id"].as_str().unwrap())
}

/// Subscribes `receiver` to `events`.
pub async fn subscribe(world: &World, receiver: &Receiver, events: &[&str]) -> Value {
    let webhook = json!({"url": receiver.url(), "events": events});
    world.admin.post(WEBHOOKS, webhook).await.expect(201)
}

/// Starts an experiment; returns its id.
pub async fn start_experiment(world: &World, name: &str) -> String {
    let experiment = world.admin.post("/api/v1/experiments", json!({"name": name})).await.expect(201);
    experiment["public_id"].as_str().unwrap().to_owned()
}

pub async fn stop_experiment(world: &World, id: &str) {
    world
        .admin
        .send(world.admin.request(reqwest::Method::PUT, &format!("/api/v1/experiments/{id}/stop")))
        .await
        .expect(200);
}

/// The deliveries of `webhook`, newest first.
pub async fn deliveries(world: &World, webhook: &Value, query: &str) -> Vec<Value> {
    let page = world.admin.get(&format!("{}/deliveries?{query}", path(webhook))).await.expect(200);
    page["data"].as_array().unwrap().clone()
}

/// Waits until the newest delivery of `webhook` has `status`; returns it.
pub async fn until_newest(world: &World, webhook: &Value, status: &str) -> Value {
    eventually_some(seconds(30), async || {
        let newest = deliveries(world, webhook, "page_size=1").await.into_iter().next()?;
        (newest["status"] == status).then_some(newest)
    })
    .await
}
