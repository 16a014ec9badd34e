//! Values that come in on channels.

mod batches;
mod reading;
mod retention;
mod series;
mod single;

use serde_json::{Value, json};

use crate::harness::{Client, World};

pub const DATAPOINTS: &str = "/api/v1/datapoints";

/// Makes an event and returns its id.
pub async fn event(world: &World, name: &str) -> String {
    let made =
        world.admin.post("/api/v1/events", json!({"name": name, "type": "sensor", "unit": "°C"})).await;
    made.expect(201)["public_id"].as_str().unwrap().to_owned()
}

pub async fn events(world: &World, count: usize) -> Vec<String> {
    let mut made = Vec::new();
    for index in 0..count {
        made.push(event(world, &format!("event {index}")).await);
    }
    made
}

pub fn value(event: &str, value: f64) -> Value {
    json!({"value": value, "event_public_id": event})
}

/// Records a value at a time, so many seconds ago.
pub async fn record_ago(world: &World, event: &str, number: f64, seconds: i64) -> Value {
    let time = world.clock.now() - chrono::TimeDelta::seconds(seconds);
    let item = json!({"value": number, "event_public_id": event, "timestamp": time.to_rfc3339()});
    world.admin.post(DATAPOINTS, item).await.expect(201)
}

/// The values of the list that a query shows, and the total.
pub async fn listed(client: &Client, query: &str) -> (Vec<f64>, i64) {
    let page = client.get(&format!("{DATAPOINTS}?{query}")).await.expect(200);
    (values(&page["data"]), page["total"].as_i64().unwrap())
}

pub fn values(points: &Value) -> Vec<f64> {
    points.as_array().unwrap().iter().map(|point| point["value"].as_f64().unwrap()).collect()
}
