//! Rules that watch the values of channels.

mod backtesting;
mod firing;
mod managing;
mod sharing;

use serde_json::{Value, json};

use crate::harness::{Client, World, eventually, seconds};

pub const RULES: &str = "/api/v1/rules";

pub fn path(rule: &Value) -> String {
    format!("{RULES}/{}", rule["public_id"].as_str().unwrap())
}

/// A rule that fires on each value above 10 and writes log entries.
pub fn above_10(name: &str, event: &str) -> Value {
    json!({"name": name, "event_public_id": event, "operator": "gt", "threshold": 10, "action_type": "log",
        "cooldown_seconds": 0})
}

pub async fn create(world: &World, rule: Value) -> Value {
    world.admin.post(RULES, rule).await.expect(201)
}

/// Sends values of an event in one batch.
pub async fn send(client: &Client, event: &str, values: impl IntoIterator<Item = f64>) {
    let items: Vec<_> =
        values.into_iter().map(|value| json!({"value": value, "event_public_id": event})).collect();
    client.post("/api/v1/datapoints/batch", json!({ "datapoints": items })).await.expect(201);
}

/// The firings in the order of the log, once the rules have evaluated all values.
pub async fn firings(world: &World) -> Vec<Value> {
    let pool = &world.servers.pool;
    let behind = "SELECT count(*) FROM ops.rule_shards s, log_head h
                   WHERE h.log = 'datapoints' AND s.position < h.position";
    let all = async || sqlx::query_scalar::<_, i64>(behind).fetch_one(pool).await.unwrap() == 0;
    eventually(seconds(20), all).await;
    sqlx::query_scalar("SELECT payload FROM events WHERE event_type = 'rule_triggered' ORDER BY position")
        .fetch_all(pool)
        .await
        .unwrap()
}

/// The values that the rules fired on.
pub async fn fired(world: &World) -> Vec<f64> {
    firings(world).await.iter().map(|firing| firing["value"].as_f64().unwrap()).collect()
}
