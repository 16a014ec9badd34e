//! Several processes evaluate, come and go.

use std::collections::BTreeMap;

use serde_json::json;
use signalbox_clock::Clock;
use signalbox_workers::{RuleEvaluation, Worker};
use sqlx::PgPool;

use super::{above_10, create, fired, firings, path, send};
use crate::{
    api::v1::datapoints::{event, events},
    harness::{World, eventually, seconds},
};

/// How many shards each evaluator holds.
async fn shares(pool: &PgPool) -> Vec<i64> {
    let sql = "SELECT count(*) FROM ops.rule_shards WHERE owned_until > now() GROUP BY owner ORDER BY 1";
    sqlx::query_scalar(sql).fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn processes_share_the_channels_evenly_and_take_over() {
    let mut world = World::with_one_worker(Clock::system(), |_| {}).await;
    let pool = world.servers.pool.clone();
    eventually(seconds(10), async || shares(&pool).await == [16]).await;
    world.another_process().await.work().await;
    eventually(seconds(10), async || shares(&pool).await == [8, 8]).await;
    let channels = events(&world, 20).await;
    for (number, channel) in channels.iter().enumerate() {
        create(&world, above_10(&format!("rule {number}"), channel)).await;
    }
    let third = world.another_process().await;
    third.work().await;
    // Shards change hands while values come in.
    for round in 0..40 {
        for channel in &channels {
            send(&world.admin, channel, [100.0 + f64::from(round), 1.0]).await;
        }
    }
    eventually(seconds(10), async || shares(&pool).await == [4, 6, 6]).await;
    let mut by_rule: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for firing in firings(&world).await {
        let rule = firing["rule_name"].as_str().unwrap().to_owned();
        by_rule.entry(rule).or_default().push(firing["value"].as_f64().unwrap());
    }
    assert_eq!(by_rule.len(), 20);
    for (rule, values) in by_rule {
        assert!(
            values.iter().copied().eq((0..40).map(|round| 100.0 + f64::from(round))),
            "{rule}: {values:?}"
        );
    }
    world.finish().await;
}

#[tokio::test]
async fn what_is_judged_by_two_at_once_fires_once() {
    let world = World::start().await;
    let pool = &world.servers.pool;
    let event = event(&world, "boiler").await;
    let rule = create(&world, above_10("too hot", &event)).await;
    let mut slow = above_10("seldom", &event);
    slow["cooldown_seconds"] = json!(3600);
    create(&world, slow).await;
    let context = world.worker_context().await;
    for round in 0..10 {
        send(&world.admin, &event, (0..20).map(|number| f64::from(round * 100 + number))).await;
        // As if checkpoints had been lost, and leases with them.
        sqlx::query("UPDATE ops.rule_shards SET position = 0, total = 0").execute(pool).await.unwrap();
        if round == 5 {
            world.admin.put(&path(&rule), json!({"threshold": 10.5})).await.expect(200);
        }
        let evaluators: Vec<_> = (0..3).map(|_| RuleEvaluation::default()).collect();
        let steps =
            evaluators.iter().map(|evaluator| async { while evaluator.step(&context).await.unwrap() {} });
        futures::future::join_all(steps).await;
    }
    fired(&world).await;
    let sql = "SELECT payload->>'rule_name', count(*), count(DISTINCT payload->>'datapoint_id') FROM events
                WHERE event_type = 'rule_triggered' GROUP BY 1 ORDER BY 1";
    let counts: Vec<(String, i64, i64)> = sqlx::query_as(sql).fetch_all(pool).await.unwrap();
    // Of the first twenty values nine are above 10, of the others all.
    assert_eq!(counts, [("seldom".to_owned(), 1, 1), ("too hot".to_owned(), 9 + 180, 9 + 180)]);
    world.finish().await;
}

#[tokio::test]
async fn the_successor_of_a_crashed_worker_misses_nothing() {
    let mut world = World::start().await;
    let event = event(&world, "boiler").await;
    create(&world, above_10("too hot", &event)).await;
    let mut expected = Vec::new();
    for round in 0..3 {
        let process = world.another_process().await;
        process.work().await;
        for number in 0..50 {
            let number = 100.0 * f64::from(round + 1) + f64::from(number);
            send(&world.admin, &event, [number]).await;
            expected.push(number);
        }
        world.stop_last().await;
    }
    assert_eq!(fired(&world).await, expected);
    world.finish().await;
}
