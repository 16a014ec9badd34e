//! Rules that watch the values of channels.

mod managing;

use serde_json::{Value, json};

use crate::harness::World;

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
