//! Processes that judge alarms crash, and two judge the same.

use chrono::TimeDelta;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use signalbox_workers::{Alarms, Worker};

use super::{ALARMS, listed, rule, until};
use crate::{
    api::v1::{datapoints::event, rules::send},
    harness::{World, eventually, seconds},
};

/// Steps until nothing is left to do.
async fn judge(world: &World, alarms: &Alarms) {
    let context = world.worker_context().await;
    while alarms.step(&context).await.unwrap() {}
    world.read_models.show_all().await;
}

async fn states(world: &World) -> Vec<Value> {
    listed(world, "sort=oldest").await.iter().map(|alarm| alarm["state"].clone()).collect()
}

#[tokio::test]
async fn a_pending_alarm_survives_the_process_that_judged_it() {
    let world = World::without_workers(Clock::manual(Clock::system().now()), |_| {}).await;
    let boiler = event(&world, "boiler").await;
    rule(&world, &boiler, json!({"for_seconds": 60, "no_data_seconds": 600})).await;
    send(&world.admin, &boiler, [11.0]).await;
    judge(&world, &Alarms::default()).await;
    assert_eq!(states(&world).await, ["pending"]);
    world.clock.advance(TimeDelta::seconds(61));
    judge(&world, &Alarms::default()).await;
    assert_eq!(states(&world).await, ["firing"]);
    world.clock.advance(TimeDelta::seconds(541));
    judge(&world, &Alarms::default()).await;
    assert_eq!(states(&world).await, ["firing", "firing"]);
    send(&world.admin, &boiler, [9.0]).await;
    judge(&world, &Alarms::default()).await;
    assert_eq!(states(&world).await, ["cleared", "cleared"]);
    world.finish().await;
}

#[tokio::test]
async fn decided_changes_are_recorded_after_a_crash() {
    let world = World::without_workers(Clock::manual(Clock::system().now()), |_| {}).await;
    let boiler = event(&world, "boiler").await;
    rule(&world, &boiler, json!({"cooldown_seconds": 0})).await;
    send(&world.admin, &boiler, [11.0]).await;
    judge(&world, &Alarms::default()).await;
    let pool = &world.servers.pool;
    // As if the process had crashed between its decision and the commands, and once more after these.
    for _ in 0..2 {
        sqlx::query(
            "INSERT INTO ops.alarm_outbox (generation, ordinal, note)
             SELECT 900, 0, jsonb_build_object('note', 'record', 'alarm_id', aggregate_id, 'alarm', payload - 'type',
                 'marks', jsonb_build_array(jsonb_build_object(
                     'kind', 'cleared', 'on', payload->'started_on', 'value', 9, 'silenced', false)))
               FROM events WHERE event_type = 'alarm_started'",
        )
        .execute(pool)
        .await
        .unwrap();
        judge(&world, &Alarms::default()).await;
    }
    assert_eq!(states(&world).await, ["cleared"]);
    let count = "SELECT count(*) FROM events WHERE event_type = 'alarm_cleared'";
    assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(pool).await.unwrap(), 1);
    let left = "SELECT count(*) FROM ops.alarm_outbox";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(pool).await.unwrap(), 0);
    world.finish().await;
}

#[tokio::test]
async fn two_that_judge_the_same_make_one_alarm() {
    let world = World::without_workers(Clock::manual(Clock::system().now()), |_| {}).await;
    let boiler = event(&world, "boiler").await;
    rule(&world, &boiler, json!({"cooldown_seconds": 0, "no_data_seconds": 30})).await;
    let judges: Vec<_> = (0..4).map(|_| Alarms::default()).collect();
    for round in 0..10 {
        world.clock.advance(TimeDelta::seconds(32));
        futures::future::join_all(judges.iter().map(|alarms| judge(&world, alarms))).await;
        send(&world.admin, &boiler, [20.0 + f64::from(round)]).await;
        futures::future::join_all(judges.iter().map(|alarms| judge(&world, alarms))).await;
        world.clock.advance(TimeDelta::seconds(1));
        send(&world.admin, &boiler, [1.0]).await;
        futures::future::join_all(judges.iter().map(|alarms| judge(&world, alarms))).await;
    }
    let page = world.admin.get(&format!("{ALARMS}?page_size=100")).await.expect(200);
    let of = |reason: &str| {
        let of_it = page["data"].as_array().unwrap().iter().filter(|alarm| alarm["reason"] == reason);
        of_it.map(|alarm| alarm["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("condition"), vec!["cleared"; 10]);
    assert_eq!(of("no_data"), vec!["cleared"; 10]);
    let firings = "SELECT count(*) FROM events WHERE event_type = 'rule_triggered'";
    // The first silence began before any value.
    assert_eq!(sqlx::query_scalar::<_, i64>(firings).fetch_one(&world.servers.pool).await.unwrap(), 19);
    world.finish().await;
}

#[tokio::test]
async fn the_successor_of_a_worker_continues_with_its_alarms() {
    let mut world = World::start().await;
    let boiler = event(&world, "boiler").await;
    rule(&world, &boiler, json!({"cooldown_seconds": 0})).await;
    for round in 0..3 {
        world.another_process().await.work().await;
        for number in 0..20 {
            send(&world.admin, &boiler, [100.0 + f64::from(number)]).await;
            send(&world.admin, &boiler, [1.0]).await;
        }
        world.stop_last().await;
        let expected = (round + 1) * 20;
        eventually(seconds(20), async || {
            world.admin.get(&format!("{ALARMS}?state=cleared")).await.expect(200)["total"] == expected
        })
        .await;
    }
    send(&world.admin, &boiler, [100.0]).await;
    until(&world, "firing").await;
    world.finish().await;
}
