//! Live: values come in one evaluation after the other while the service's clock moves. Some come half a second late, some with a
//! time that has passed, and some at the time of another one; those of the last two kinds are none of promtool's.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{Case, INTERVAL, STEPS, Span, compare, moment, seed};
use crate::{
    api::{
        prometheus::{series, write},
        v1::{alarms::listed, rules},
    },
    harness::{World, eventually, seconds},
};

/// Rules unless the variable `RULES` says how many.
const RULES: usize = 100;
/// Values that come as many milliseconds late are judged in their order: time passes a second behind.
const LATE: i64 = 500;

/// The number of a channel, a value, and its time.
type Given = (usize, f64, DateTime<Utc>);

async fn send(world: &World, values: &[Given]) {
    if values.is_empty() {
        return;
    }
    let all = values.iter().map(|(number, value, time)| {
        series(&[("__name__", "s"), ("i", &number.to_string())], &[(*value, time.timestamp_millis())])
    });
    let answer = write(&world.admin, all.collect()).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
}

/// Waits until all values were judged and what was decided is in the log.
async fn judged(world: &World) {
    let judged = "SELECT p.position >= h.position AND NOT EXISTS (SELECT FROM ops.alarm_outbox)
                    FROM ops.alarm_progress p, log_head h WHERE h.log = 'datapoints'";
    eventually(seconds(60), async || {
        sqlx::query_scalar(judged).fetch_one(&world.servers.pool).await.unwrap()
    })
    .await;
}

/// A channel with the labels by which values come to it, and `rule` on it; the id of the rule.
async fn add(world: &World, number: usize, rule: &Value) -> String {
    let channel = json!({"name": format!("s{number}"), "type": "sensor", "labels": {"__name__": "s", "i": number.to_string()}});
    let channel = world.admin.post("/api/v1/events", channel).await.expect(201);
    let mut rule = rule.clone();
    rule["name"] = json!(format!("r{number}"));
    rule["event_public_id"] = channel["public_id"].clone();
    rules::create(world, rule).await["public_id"].as_str().unwrap().to_owned()
}

/// All alarms.
async fn alarms(world: &World) -> Vec<Value> {
    let mut all = Vec::new();
    for page in 1.. {
        let answer = world.admin.get(&format!("/api/v1/alarms?page={page}&page_size=100")).await.expect(200);
        let alarms = answer["data"].as_array().unwrap();
        if alarms.is_empty() {
            break;
        }
        all.extend(alarms.iter().cloned());
    }
    all
}

/// The states that `alarm` had.
fn spans(number: usize, alarm: &Value) -> Vec<Span> {
    let time = |field: &str| alarm[field].as_str().map(|time| time.parse::<DateTime<Utc>>().unwrap());
    let (started, fired, cleared) = (time("started_on").unwrap(), time("fired_on"), time("cleared_on"));
    let span = |state, from, to| Span {
        number,
        reason: alarm["reason"].as_str().unwrap().to_owned(),
        state,
        from,
        to,
    };
    let pending = span("pending", started, fired.or(cleared));
    std::iter::once(pending).chain(fired.map(|fired| span("firing", fired, cleared))).collect()
}

#[tokio::test]
async fn random_live_rules_have_the_states_that_prometheus_gives_them() {
    let count = std::env::var("RULES").ok().and_then(|count| count.parse().ok()).unwrap_or(RULES);
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let cases: Vec<_> = (0..count).map(|number| Case::random(&mut rng, number)).collect();
    let start = DateTime::from_timestamp(Clock::system().now().timestamp(), 0).unwrap();
    let world = World::at(Clock::manual(start), |_| {}).await;
    let mut numbers = HashMap::new();
    for (number, case) in cases.iter().enumerate() {
        numbers.insert(add(&world, number, &case.rule).await, number);
    }
    // An alarm that shows that time has passed for all.
    let last = json!({"operator": "gt", "threshold": 0, "action_type": "log", "no_data_seconds": 1});
    let last_rule = add(&world, count, &last).await;
    judged(&world).await;

    // No rule is silent for so short.
    world.clock.advance(TimeDelta::seconds(1));
    let begin = world.clock.now();
    let mut late = 0;
    for step in 0..STEPS {
        let at = moment(begin, step);
        world.clock.advance(at - world.clock.now());
        let mut requests: [Vec<Given>; 3] = Default::default();
        for (number, case) in cases.iter().enumerate() {
            let value = case.values[step];
            if let Some(value) = value {
                // The first is there when the rule is.
                let is_late = step > 0 && rng.random_bool(0.3);
                requests[usize::from(is_late)].push((number, value, at));
            }
            // Of the newest value's time or of an earlier one.
            let newest = (0..=step).rev().find(|step| case.values[*step].is_some()).unwrap_or_default();
            if rng.random_bool(0.1) {
                let before = if rng.random_bool(0.3) { 0 } else { rng.random_range(1..3 * INTERVAL as i64) };
                let time = moment(begin, newest) - TimeDelta::seconds(before);
                requests[2].push((number, f64::from(rng.random_range(10..20_u8)), time));
            }
        }
        send(&world, &requests[0]).await;
        judged(&world).await;
        world.clock.advance(TimeDelta::milliseconds(LATE));
        send(&world, &requests[1]).await;
        send(&world, &requests[2]).await;
        judged(&world).await;
        late += requests[2].len();
    }
    assert!(late > STEPS, "seed {seed}: only {late} values are late");
    world.clock.advance(TimeDelta::seconds(2));
    send(&world, &[(count, 1.0, world.clock.now())]).await;
    judged(&world).await;
    world.clock.advance(TimeDelta::seconds(3));
    let passed = async || {
        let newest = listed(&world, &format!("rule_public_id={last_rule}")).await.into_iter().next();
        newest.is_some_and(|alarm| alarm["state"] == "firing" && !alarm["value"].is_null())
    };
    eventually(seconds(60), passed).await;
    judged(&world).await;
    world.read_models.show_all().await;

    let all = alarms(&world).await;
    let found = all.iter().filter_map(|alarm| {
        let number = numbers.get(alarm["rule_public_id"].as_str().unwrap())?;
        Some(spans(*number, alarm))
    });
    let found: Vec<_> = found.flatten().collect();
    compare(seed, &cases, begin, &found).await;
    world.finish().await;
}
