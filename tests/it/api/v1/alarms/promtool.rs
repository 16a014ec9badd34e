//! Random rules judged by the back-test and by Prometheus' own tests of alerting rules: the states must be the same at every
//! evaluation.

use std::{collections::HashMap, fmt::Write};

use chrono::{DateTime, TimeDelta, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde_json::{Value, json};

use crate::{
    api::prometheus::{series, write},
    harness::{World, promtool},
};

const RULES: usize = 1000;
/// The seed unless the variable `SEED` names another: fixed, so that a failure is one of the change at hand.
const SEED: u64 = 20_261_124;
/// Evaluations, each so many seconds after the one before.
const STEPS: usize = 48;
const INTERVAL: usize = 15;

/// A rule as both sides know it, and the values of its channel by evaluation.
struct Case {
    rule: Value,
    /// Expressions of its alarms, by reason.
    expressions: Vec<(&'static str, String)>,
    values: Vec<Option<f64>>,
}

fn one_of<T: Copy>(rng: &mut StdRng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

impl Case {
    fn random(rng: &mut StdRng, number: usize) -> Self {
        let rates = rng.random_bool(0.25);
        let gaps = if rates { 0.0 } else { one_of(rng, &[0.0, 0.1, 0.5]) };
        let mut values: Vec<_> = (0..STEPS)
            .map(|_| (!rng.random_bool(gaps)).then(|| f64::from(rng.random_range(0..10_u8))))
            .collect();
        values[0] = Some(f64::from(rng.random_range(0..10_u8)));
        let (operator, sign) = one_of(rng, &[("gt", ">"), ("gte", ">="), ("lt", "<"), ("lte", "<=")]);
        let is_above = sign.starts_with('>');
        // Slopes of whole numbers at whole seconds are never that.
        let threshold = if rates {
            rng.random_range(-20..20) as f64 * 0.01 + 0.001_234
        } else {
            f64::from(rng.random_range(2..8_u8))
        };
        let mut rule = json!({"name": "r", "operator": operator, "threshold": threshold, "action_type": "log", "cooldown_seconds": 0, "alarm": true});
        let (selector, mut expressions) = (format!("s{{i=\"{number}\"}}"), Vec::new());
        let value = if rates {
            let window = one_of(rng, &[20, 45, 60, 130]);
            rule["rate_window_seconds"] = json!(window);
            format!("deriv({selector}[{window}s])")
        } else {
            format!("last_over_time({selector}[1d])")
        };
        let mut condition = format!("{value} {sign} {threshold}");
        if rng.random_bool(0.4) {
            let clear = if is_above { threshold - 2.0 } else { threshold + 2.0 };
            rule["clear_threshold"] = json!(clear);
            let holds = if is_above { ">=" } else { "<=" };
            let fires = format!("ALERTS{{alertname=\"condition{number}\",alertstate=\"firing\"}}");
            condition = format!("{condition} or ({value} {holds} {clear} and on () {fires})");
        }
        for (field, choices) in
            [("for_seconds", &[0, 15, 30, 60][..]), ("keep_firing_seconds", &[0, 15, 30, 45])]
        {
            rule[field] = json!(one_of(rng, choices));
        }
        expressions.push(("condition", condition));
        if !rates && rng.random_bool(0.3) {
            let silence = one_of(rng, &[10, 15, 40, 60]);
            rule["no_data_seconds"] = json!(silence);
            expressions.push(("no_data", format!("absent_over_time({selector}[{silence}s])")));
        }
        Self { rule, expressions, values }
    }

    /// Its alerting rules.
    fn alerts(&self, number: usize) -> String {
        let mut text = String::new();
        for (reason, expression) in &self.expressions {
            let seconds =
                |field: &str| if *reason == "condition" { self.rule[field].as_u64().unwrap() } else { 0 };
            let (pending, kept) = (seconds("for_seconds"), seconds("keep_firing_seconds"));
            writeln!(
                text,
                "  - alert: {reason}{number}\n    expr: '{expression}'\n    for: {pending}s\n    keep_firing_for: {kept}s\n    labels: {{ i: \"{number}\" }}"
            )
            .unwrap();
        }
        text
    }
}

fn moment(begin: DateTime<Utc>, step: usize) -> DateTime<Utc> {
    begin + TimeDelta::seconds((step * INTERVAL) as i64)
}

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
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let cases: Vec<_> = (0..RULES).map(|number| Case::random(&mut rng, number)).collect();
    let begin = DateTime::from_timestamp(world.clock.now().timestamp() - 3600, 0).unwrap();
    send(&world, &mut rng, &cases, begin).await;
    let channels = channels(&world).await;
    // The samples of ALERTS at each evaluation, by the back-test.
    let mut expected = vec![String::new(); STEPS];
    for (number, case) in cases.iter().enumerate() {
        let mut rule = case.rule.clone();
        rule["event_public_id"] = json!(channels[&number]);
        let draft =
            json!({"rule": rule, "from": begin.to_rfc3339(), "to": moment(begin, STEPS).to_rfc3339()});
        let tested = world.admin.post("/api/v1/rules/backtest", draft).await.expect(200);
        for interval in tested["intervals"].as_array().unwrap() {
            let time =
                |field: &str| interval[field].as_str().map(|time| time.parse::<DateTime<Utc>>().unwrap());
            let (from, to) = (time("from").unwrap(), time("to").unwrap_or(DateTime::<Utc>::MAX_UTC));
            for (step, expected) in expected.iter_mut().enumerate() {
                let (at, reason) = (moment(begin, step), interval["reason"].as_str().unwrap());
                // At the first moment of a silence that is too long, it is just not.
                if (from..to).contains(&at) && (reason == "condition" || at > from) {
                    let state = interval["state"].as_str().unwrap();
                    writeln!(expected, "      - labels: 'ALERTS{{alertname=\"{reason}{number}\",alertstate=\"{state}\",i=\"{number}\"}}'\n        value: 1").unwrap();
                }
            }
        }
    }
    let states: usize = expected.iter().map(|expected| expected.lines().count() / 2).sum();
    assert!(states > 10 * RULES, "seed {seed}: the alarms have only {states} states");

    let mut rules = format!("groups:\n- name: all\n  interval: {INTERVAL}s\n  rules:\n");
    let mut tests = format!(
        "rule_files: [rules.yml]\nevaluation_interval: {INTERVAL}s\ntests:\n- interval: {INTERVAL}s\n  input_series:\n"
    );
    for (number, case) in cases.iter().enumerate() {
        rules += &case.alerts(number);
        let values: Vec<_> =
            case.values.iter().map(|value| value.map_or("_".to_owned(), |value| value.to_string())).collect();
        writeln!(tests, "  - series: 's{{i=\"{number}\"}}'\n    values: '{}'", values.join(" ")).unwrap();
    }
    tests += "  promql_expr_test:\n";
    for (step, expected) in expected.iter().enumerate() {
        let samples = if expected.is_empty() { " []".to_owned() } else { format!("\n{expected}") };
        writeln!(tests, "  - expr: ALERTS\n    eval_time: {}s\n    exp_samples:{samples}", step * INTERVAL)
            .unwrap();
    }
    let report = promtool::test_rules(&rules, &tests).await;
    assert!(report.is_ok(), "seed {seed}: {}", report.unwrap_err());
    world.finish().await;
}
