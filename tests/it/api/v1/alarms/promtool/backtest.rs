//! By the back-test, from values that came in any order.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};

use super::{Case, STEPS, Span, compare, moment, seed};
use crate::{
    api::prometheus::{series, write},
    harness::World,
};

const RULES: usize = 1000;

/// Sends all values: first others at some of the times, and then all of them in any order.
async fn send(world: &World, rng: &mut StdRng, cases: &[Case], begin: DateTime<Utc>) {
    let mut requests: [Vec<Vec<(f64, i64)>>; 3] = std::array::from_fn(|_| vec![Vec::new(); cases.len()]);
    for (number, case) in cases.iter().enumerate() {
        for (step, value) in case.values.iter().enumerate() {
            let Some(value) = value else { continue };
            let time = moment(begin, step).timestamp_millis();
            if rng.random_bool(0.05) {
                requests[0][number].push((value + 1.0, time));
            }
            requests[rng.random_range(1..3)][number].push((*value, time));
        }
    }
    for request in &mut requests {
        let mut all = Vec::new();
        for (number, samples) in request.iter_mut().enumerate() {
            samples.shuffle(rng);
            all.push(series(&[("__name__", "s"), ("i", &number.to_string())], samples));
        }
        let answer = write(&world.admin, all).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
}

/// The ids of the channels by the number in their label.
async fn channels(world: &World) -> HashMap<usize, String> {
    let mut found = HashMap::new();
    for page in 1.. {
        let answer = world.admin.get(&format!("/api/v1/events?page={page}&page_size=100")).await.expect(200);
        let events = answer["data"].as_array().unwrap();
        if events.is_empty() {
            break;
        }
        found.extend(events.iter().map(|event| {
            let number = event["labels"]["i"].as_str().unwrap().parse().unwrap();
            (number, event["public_id"].as_str().unwrap().to_owned())
        }));
    }
    found
}

#[tokio::test]
async fn random_rules_have_the_states_that_prometheus_gives_them() {
    let world = World::start().await;
    let seed = seed();
    let mut rng = StdRng::seed_from_u64(seed);
    let cases: Vec<_> = (0..RULES).map(|number| Case::random(&mut rng, number)).collect();
    let begin = DateTime::from_timestamp(world.clock.now().timestamp() - 3600, 0).unwrap();
    send(&world, &mut rng, &cases, begin).await;
    let channels = channels(&world).await;
    let mut spans = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let mut rule = case.rule.clone();
        rule["event_public_id"] = json!(channels[&number]);
        let draft =
            json!({"rule": rule, "from": begin.to_rfc3339(), "to": moment(begin, STEPS).to_rfc3339()});
        let tested = world.admin.post("/api/v1/rules/backtest", draft).await.expect(200);
        spans.extend(tested["intervals"].as_array().unwrap().iter().map(|interval| span(number, interval)));
    }
    compare(seed, &cases, begin, &spans).await;
    world.finish().await;
}

fn span(number: usize, interval: &Value) -> Span {
    let time = |field: &str| interval[field].as_str().map(|time| time.parse::<DateTime<Utc>>().unwrap());
    let state = if interval["state"] == "pending" { "pending" } else { "firing" };
    let reason = interval["reason"].as_str().unwrap().to_owned();
    Span { number, reason, state, from: time("from").unwrap(), to: time("to") }
}
