//! Processes that judge alarms and notify of them are killed.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;
use signalbox_clock::Clock;

use super::{
    ALARMS,
    contacts::{create, messages},
    listed,
};
use crate::{
    api::v1::{
        datapoints::event,
        rules::{self, above_10, send},
    },
    harness::{Receiver, WorkerProcess, World, eventually, seconds},
};

const HOLD_SECONDS: u32 = 60;

#[tokio::test]
async fn workers_killed_in_each_second_of_for_make_one_alarm_and_one_message() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let receiver = Receiver::lenient().await;
    let day = create(&world, json!({"name": "day", "kind": "webhook", "url": receiver.url()})).await;
    let boiler = event(&world, "boiler").await;
    let mut rule = above_10("too hot", &boiler);
    for (field, value) in [
        ("for_seconds", json!(HOLD_SECONDS)),
        ("severity", json!("critical")),
        ("contact_ids", json!([day["public_id"]])),
    ] {
        rule[field] = value;
    }
    let rule = rules::create(&world, rule).await;
    let begin = world.clock.now();
    send(&world.admin, &boiler, [11.0]).await;
    // Each process lives for a second; the last two are killed after the alarm was due.
    let mut each = tokio::time::interval(Duration::from_secs(1));
    let mut process = None::<WorkerProcess>;
    for _ in 0..HOLD_SECONDS + 3 {
        each.tick().await;
        if let Some(killed) = process.replace(WorkerProcess::start(&world)) {
            killed.kill();
        }
    }
    let got = receiver.until_got(1).await;
    world
        .admin
        .until(ALARMS.to_owned(), |page| page["data"][0]["notifications"][0]["status"] == "delivered")
        .await;
    let alarms = listed(&world, "").await;
    assert_eq!((alarms.len(), &alarms[0]["state"]), (1, &json!("firing")));
    let time = |field: &str| alarms[0][field].as_str().unwrap().parse::<DateTime<Utc>>().unwrap();
    assert_eq!((time("fired_on") - time("started_on")).num_seconds(), i64::from(HOLD_SECONDS));
    let window = json!({"from": begin.to_rfc3339(), "to": world.clock.now().to_rfc3339()});
    let tested = world.admin.post(&format!("{}/backtest", rules::path(&rule)), window).await.expect(200);
    assert_eq!(tested["intervals"][1]["from"], alarms[0]["fired_on"]);
    // A request that was cut off may have been repeated, by the same id.
    let sent = messages(&world, &day).await;
    assert_eq!(sent.len(), 1);
    assert!(receiver.got().iter().all(|one| one.header("webhook-id") == got[0].header("webhook-id")));
    drop(process);
    eventually(seconds(20), async || world.count_events("message_queued").await == 1).await;
    world.finish().await;
}
