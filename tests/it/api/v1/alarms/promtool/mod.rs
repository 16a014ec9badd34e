//! Random rules judged by us and by Prometheus' own tests of alerting rules: the states must be the same at every evaluation.

mod backtest;
mod live;

use std::fmt::Write;

use chrono::{DateTime, TimeDelta, Utc};
use rand::{Rng, rngs::StdRng};
use serde_json::{Value, json};

use crate::harness::promtool;

/// The seed unless the variable `SEED` names another: fixed, so that a failure is one of the change at hand.
const SEED: u64 = 20_261_124;
/// Evaluations, each so many seconds after the one before.
const STEPS: usize = 48;
const INTERVAL: usize = 15;

fn seed() -> u64 {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED);
    println!("seed {seed}");
    seed
}

/// A rule as both sides know it, and the values of its channel by evaluation.
pub struct Case {
    pub rule: Value,
    /// Expressions of its alarms, by reason.
    expressions: Vec<(&'static str, String)>,
    pub values: Vec<Option<f64>>,
}

pub fn one_of<T: Copy>(rng: &mut StdRng, choices: &[T]) -> T {
    choices[rng.random_range(0..choices.len())]
}

impl Case {
    pub fn random(rng: &mut StdRng, number: usize) -> Self {
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

pub fn moment(begin: DateTime<Utc>, step: usize) -> DateTime<Utc> {
    begin + TimeDelta::seconds((step * INTERVAL) as i64)
}

/// A state that an alarm had from a time until before another one.
struct Span {
    number: usize,
    reason: String,
    state: &'static str,
    from: DateTime<Utc>,
    to: Option<DateTime<Utc>>,
}

/// Compares the states of `spans` with those that promtool gives the alarms of `cases` at each evaluation from `begin` on.
async fn compare(seed: u64, cases: &[Case], begin: DateTime<Utc>, spans: &[Span]) {
    // The samples of ALERTS at each evaluation.
    let mut expected = vec![String::new(); STEPS];
    for Span { number, reason, state, from, to } in spans {
        for (step, expected) in expected.iter_mut().enumerate() {
            let at = moment(begin, step);
            let is_inside = *from <= at && to.is_none_or(|to| at < to);
            // At the first moment of a silence that is too long, it is just not.
            if is_inside && (reason == "condition" || at > *from) {
                writeln!(expected, "      - labels: 'ALERTS{{alertname=\"{reason}{number}\",alertstate=\"{state}\",i=\"{number}\"}}'\n        value: 1").unwrap();
            }
        }
    }
    let states: usize = expected.iter().map(|expected| expected.lines().count() / 2).sum();
    assert!(states > 10 * cases.len(), "seed {seed}: the alarms have only {states} states");

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
    println!("{states} states of {} rules are the same", cases.len());
}
