//! Jobs that run by themselves.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Timelike, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::pair::Pair;
use crate::api::v1::log::causal_trace;
use crate::harness::{
    Transport::{Polling, Websocket},
    World, bytes, eventually, seconds,
};

fn time(value: &Value) -> DateTime<Utc> {
    value.as_str().unwrap().parse().unwrap()
}

/// Waits until `job` is shown with this next run.
#[track_caller]
fn until_next_run(world: &World, job: i64, expected: &str) -> impl Future<Output = ()> {
    let (path, expected) = (format!("/api/jobs/{job}"), expected.parse::<DateTime<Utc>>().unwrap());
    eventually(seconds(10), async move || {
        let shown = world.admin.get(&path).await.expect(200);
        shown["next_run"].is_string() && time(&shown["next_run"]) == expected
    })
}

async fn transfers_of(world: &World, job: i64) -> Vec<Value> {
    let listed = world.admin.get(&format!("/api/transfers?job_id={job}&limit=500")).await.expect(200);
    listed.as_array().unwrap().clone()
}

#[tokio::test]
async fn two_schedulers_make_one_transfer_per_firing() {
    let mut world = World::start().await;
    world.another_process().await.work().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", bytes(10));
    let agents = pair.start(&world, Websocket, Polling);
    let job = pair.job(&world, "f", "g", json!({"schedule": "* * * * * *", "overlap": "queue"})).await;
    // The workers of the second process wait for the leases; steps by hand are a scheduler that has none.
    let rival = world.worker_parts().await;
    let enough = async || {
        let scheduler = signalbox_workers::Scheduler::new(&rival.config.transfer);
        signalbox_workers::Worker::step(&scheduler, &rival.context).await.unwrap();
        transfers_of(&world, job).await.len() >= 3
    };
    eventually(seconds(20), enough).await;
    world.admin.put(&format!("/api/jobs/{job}"), json!({"enabled": false})).await.expect(200);
    let statement = "SELECT payload->>'scheduled_for' FROM events WHERE event_type = 'transfer_requested'";
    let firings: Vec<Option<String>> =
        sqlx::query_scalar(statement).fetch_all(&world.servers.pool).await.unwrap();
    assert!(firings.len() >= 3 && firings.iter().all(Option::is_some), "{firings:?}");
    let distinct: HashSet<_> = firings.iter().collect();
    assert_eq!(distinct.len(), firings.len(), "{firings:?}");
    let made = transfers_of(&world, job).await;
    for transfer in &made {
        world.until_ended(transfer["id"].as_i64().unwrap()).await;
    }
    agents.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_firing_is_left_out_while_the_last_transfer_runs() {
    let clock = Clock::manual("2026-03-01T10:00:30Z".parse().unwrap());
    let world = World::at(clock.clone(), |_| {}).await;
    let pair = Pair::new(&world).await;
    let skip = pair.job(&world, "f", "g", json!({"schedule": "0 * * * * *"})).await;
    let queue = pair.job(&world, "f", "h", json!({"schedule": "* * * * *", "overlap": "queue"})).await;
    for minute in 1..=2 {
        clock.advance(TimeDelta::minutes(1));
        eventually(seconds(10), async || transfers_of(&world, queue).await.len() == minute).await;
    }
    eventually(seconds(10), async || world.count_events("job_firing_skipped").await == 1).await;
    assert_eq!(transfers_of(&world, skip).await.len(), 1);
    until_next_run(&world, skip, "2026-03-01T10:03:00Z").await;
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_missed_run_is_made_up_for_once_unless_it_is_too_late() {
    let clock = Clock::manual("2026-03-01T10:00:30Z".parse().unwrap());
    let world = World::at(clock.clone(), |config| config.transfer.catch_up_seconds = 3600).await;
    let pair = Pair::new(&world).await;
    let often = pair.job(&world, "f", "g", json!({"schedule": "0 */10 * * * *"})).await;
    let daily = pair.job(&world, "f", "h", json!({"schedule": "0 0 11 * * *"})).await;
    // Six and a half hours in which nothing ran.
    clock.advance(TimeDelta::minutes(390));
    eventually(seconds(10), async || transfers_of(&world, often).await.len() == 1).await;
    eventually(seconds(10), async || world.count_events("job_firing_skipped").await == 1).await;
    assert!(transfers_of(&world, daily).await.is_empty());
    until_next_run(&world, often, "2026-03-01T16:40:00Z").await;
    until_next_run(&world, daily, "2026-03-02T11:00:00Z").await;
    assert_eq!(transfers_of(&world, often).await.len(), 1);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_schedule_follows_its_time_zone_over_the_change_of_the_clocks() {
    let clock = Clock::manual("2026-03-28T12:00:00Z".parse().unwrap());
    let world = World::at(clock.clone(), |_| {}).await;
    let pair = Pair::new(&world).await;
    let schedule = json!({"schedule": "0 30 8 * * *", "timezone": "Europe/Berlin", "enabled": true});
    let job = pair.job(&world, "f", "g", schedule).await;
    let shown = world.admin.get(&format!("/api/jobs/{job}")).await.expect(200);
    // On the next morning summer time has begun.
    assert_eq!(time(&shown["next_run"]).hour(), 6, "{shown}");
    let back = world.admin.put(&format!("/api/jobs/{job}"), json!({"timezone": "UTC"})).await.expect(200);
    assert_eq!(time(&back["next_run"]).hour(), 8);
    let paused = world.admin.put(&format!("/api/jobs/{job}"), json!({"enabled": false})).await.expect(200);
    assert_eq!((&paused["status"], &paused["next_run"]), (&json!("paused"), &json!(null)));
    let cleared =
        world.admin.put(&format!("/api/jobs/{job}"), json!({"schedule": null, "enabled": true})).await;
    let cleared = cleared.expect(200);
    assert_eq!((&cleared["schedule"], &cleared["timezone"]), (&json!(null), &json!("UTC")));
    let kept =
        world.admin.put(&format!("/api/jobs/{job}"), json!({"timezone": "Asia/Tokyo"})).await.expect(200);
    assert_eq!(kept["timezone"], "Asia/Tokyo");
    let again =
        world.admin.put(&format!("/api/jobs/{job}"), json!({"schedule": "0 0 9 * * *"})).await.expect(200);
    assert_eq!((&again["timezone"], time(&again["next_run"]).hour()), (&json!("Asia/Tokyo"), 0));
    world.finish().await;
}

#[tokio::test]
async fn a_firing_leads_to_all_that_becomes_of_its_transfer() {
    let world = World::start().await;
    let pair = Pair::new(&world).await;
    pair.source.write("f", bytes(10));
    let agents = pair.start(&world, Websocket, Polling);
    let job = pair.job(&world, "f", "g", json!({"schedule": "* * * * * *"})).await;
    eventually(seconds(20), async || !transfers_of(&world, job).await.is_empty()).await;
    world.admin.put(&format!("/api/jobs/{job}"), json!({"enabled": false})).await.expect(200);
    for transfer in transfers_of(&world, job).await {
        world.until_ended(transfer["id"].as_i64().unwrap()).await;
    }
    let newest = world.admin.get("/api/v1/log?event_type=transfer_completed&limit=1").await.expect(200);
    let stream = newest["data"][0]["stream_id"].as_str().unwrap();
    let whole = world.admin.get(&format!("/api/v1/log/streams/transfer/{stream}")).await.expect(200);
    let events = causal_trace(&world, newest["data"][0]["correlation"].as_str().unwrap()).await;
    assert!(events.len() as u64 >= whole["version"].as_u64().unwrap(), "{events:?}");
    assert_eq!(
        (&events[0]["type"], &events[0]["actor"]),
        (&json!("transfer_requested"), &json!("system:scheduler"))
    );
    // Each event is caused by the one before, whichever part sent it.
    let depths: Vec<_> = events.iter().map(|event| event["depth"].as_u64().unwrap()).collect();
    assert_eq!(depths, (0..events.len() as u64).collect::<Vec<_>>());
    let of = |kind: &str| events.iter().find(|event| event["type"] == kind).unwrap();
    assert_eq!(of("transfer_dispatched")["actor"], "system:dispatch");
    assert!(of("files_staged")["actor"].as_str().unwrap().starts_with("agent:"));
    assert_eq!(of("transfer_completed")["outcome"], "succeeded");
    agents.stop().await;
    world.finish().await;
}
