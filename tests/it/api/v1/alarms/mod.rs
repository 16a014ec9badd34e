//! Alarms of rules.

mod acknowledging;
mod contacts;
mod crashing;
mod deleted_events;
mod judging;
mod notifying;
mod promtool;
mod settings;
mod sharing;
mod silencing;

use chrono::TimeDelta;
use serde_json::{Value, json};
use signalbox_clock::Clock;

use crate::{
    api::v1::rules::{self, above_10},
    harness::{World, eventually, eventually_some, seconds},
};

pub const ALARMS: &str = "/api/v1/alarms";

pub fn path(alarm: &Value) -> String {
    format!("{ALARMS}/{}", alarm["public_id"].as_str().unwrap())
}

/// A service whose time stands still until the test moves it.
pub async fn standing() -> World {
    World::at(Clock::manual(Clock::system().now()), |_| {}).await
}

/// A rule on values above 10 whose alarm has `settings`.
pub async fn rule(world: &World, event: &str, settings: Value) -> Value {
    let mut rule = above_10("too hot", event);
    rule["alarm"] = json!(true);
    for (name, value) in settings.as_object().unwrap() {
        rule[name] = value.clone();
    }
    rules::create(world, rule).await
}

/// The alarms that `query` shows, newest first.
pub async fn listed(world: &World, query: &str) -> Vec<Value> {
    let page = world.admin.get(&format!("{ALARMS}?{query}")).await.expect(200);
    page["data"].as_array().unwrap().clone()
}

/// Waits until the newest alarm has `state`.
pub async fn until(world: &World, state: &str) -> Value {
    eventually_some(seconds(20), async || {
        listed(world, "").await.into_iter().next().filter(|alarm| alarm["state"] == state)
    })
    .await
}

/// Lets the alarm of a rule on values of `channel` above 10 change 600 times, and waits until hundreds of changes wait to be recorded.
pub async fn change_often(world: &World, channel: &str) {
    let begun = world.clock.now() - TimeDelta::seconds(2000);
    let values: Vec<_> = (0..600)
        .map(|second| {
            let time = (begun + TimeDelta::seconds(second)).to_rfc3339();
            json!({"event_public_id": channel, "value": if second % 2 == 0 { 50 } else { 1 }, "timestamp": time})
        })
        .collect();
    world.admin.post("/api/v1/datapoints/batch", json!({"datapoints": values})).await.expect(201);
    eventually(seconds(20), async || waiting_changes(world).await > 300).await;
}

/// Changes of alarms that wait to be recorded.
pub async fn waiting_changes(world: &World) -> i64 {
    let asked = sqlx::query_scalar("SELECT count(*) FROM ops.alarm_outbox");
    asked.fetch_one(&world.servers.pool).await.unwrap()
}

/// Types of webhook events about alarms.
pub const EVENTS: [&str; 3] = ["alarm.firing", "alarm.cleared", "alarm.acknowledged"];
