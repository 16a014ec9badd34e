//! PromQL asked of Debian's Prometheus, over our remote read and over its own storage: the answers must be the same.

use std::fmt::Write;

use rand::{Rng, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};

use super::{series, write};
use crate::{
    api::v1::datapoints::{DATAPOINTS, event},
    harness::{Prometheus, World},
};

const QUERIES: usize = 200;
/// The seed unless the variable `SEED` names another: fixed, so that a failure is one of the change at hand.
const SEED: u64 = 20_261_124;
const HOUR: i64 = 3_600_000;

/// A series, and its samples: values and milliseconds.
type Written = (Vec<(&'static str, String)>, Vec<(f64, i64)>);

/// Counters and gauges of two jobs and three instances, on odd times, with gaps and resets.
fn written(rng: &mut StdRng, begin: i64) -> Vec<Written> {
    let mut found = Vec::new();
    for name in ["requests_total", "temperature"] {
        for (job, instance) in [("a", "1"), ("a", "2"), ("b", "1"), ("b", "3")] {
            let (mut time, mut value, mut samples) = (begin, rng.random_range(0.0..100.0), Vec::new());
            while time < begin + 3 * HOUR {
                time += rng.random_range(9_000..21_000);
                if rng.random_bool(0.01) {
                    time += rng.random_range(60_000..900_000);
                }
                value = match name {
                    "temperature" => value + rng.random_range(-1.5..1.5),
                    _ if rng.random_bool(0.005) => 0.0,
                    _ => value + f64::from(rng.random_range(0_u8..50)),
                };
                samples.push((value, time));
            }
            let labels = vec![
                ("__name__", name.to_owned()),
                ("instance", instance.to_owned()),
                ("job", job.to_owned()),
            ];
            found.push((labels, samples));
        }
    }
    found
}

/// The text from which promtool makes a storage.
fn openmetrics(all: &[Written]) -> String {
    let mut text = String::new();
    for (labels, samples) in all {
        let own: Vec<_> = labels[1..].iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        for (value, time) in samples {
            let (seconds, rest) = (time / 1000, time % 1000);
            writeln!(text, "{}{{{}}} {value:?} {seconds}.{rest:03}", labels[0].1, own.join(",")).unwrap();
        }
    }
    text + "# EOF\n"
}

pub fn one_of<'a>(rng: &mut StdRng, choices: &[&'a str]) -> &'a str {
    choices[rng.random_range(0..choices.len())]
}

fn selector(rng: &mut StdRng) -> String {
    let name =
        one_of(rng, &["requests_total", "temperature", "signalbox_value", "{__name__=~\"re.*|temp.*\"}"]);
    if name.starts_with('{') {
        return name.to_owned();
    }
    let matchers = one_of(
        rng,
        &[
            "",
            "{job=\"a\"}",
            "{job!=\"a\"}",
            "{instance=~\"1|3\"}",
            "{instance!~\"1.*\",job=~\".+\"}",
            "{none=\"\"}",
        ],
    );
    format!("{name}{matchers}")
}

fn vector(rng: &mut StdRng) -> String {
    let (selected, range) = (selector(rng), one_of(rng, &["1m", "5m", "17m", "1h"]));
    match rng.random_range(0..6) {
        0 => selected,
        1 => format!("{selected} offset {range}"),
        2 => format!("quantile_over_time(0.9, {selected}[{range}])"),
        3 => format!("max_over_time(sum by (job) ({selected})[{range}:30s])"),
        _ => {
            let function = one_of(
                rng,
                &[
                    "rate",
                    "increase",
                    "delta",
                    "deriv",
                    "changes",
                    "resets",
                    "irate",
                    "avg_over_time",
                    "min_over_time",
                    "max_over_time",
                    "sum_over_time",
                    "count_over_time",
                    "stddev_over_time",
                    "last_over_time",
                ],
            );
            format!("{function}({selected}[{range}])")
        }
    }
}

fn expression(rng: &mut StdRng) -> String {
    let one = vector(rng);
    match rng.random_range(0..6) {
        0 => format!("sum by (job) ({one})"),
        1 => format!("max without (instance) ({one})"),
        2 => format!("topk(2, {one})"),
        3 => format!("avg({one}) - on () avg({})", vector(rng)),
        4 => format!("count({one} > 10)"),
        _ => one,
    }
}

pub type Values = Result<Vec<(String, Vec<(f64, f64)>)>, String>;

/// The values of an answer by series, with their times; its error if the expression makes series with the same labels.
pub fn values(answer: &Value) -> Values {
    // A remote read that fails is a warning there.
    assert!(answer.get("warnings").is_none(), "{answer}");
    if answer["errorType"] == "execution" {
        return Err(answer["error"].to_string());
    }
    assert_eq!(answer["status"], "success", "{answer}");
    let pair = |pair: &Value| (pair[0].as_f64().unwrap(), pair[1].as_str().unwrap().parse::<f64>().unwrap());
    let of = |series: &Value| {
        let values = match series.get("values") {
            Some(values) => values.as_array().unwrap().iter().map(pair).collect(),
            None => vec![pair(&series["value"])],
        };
        (series["metric"].to_string(), values)
    };
    let mut found: Vec<_> = answer["data"]["result"].as_array().unwrap().iter().map(of).collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    Ok(found)
}

fn is_same(one: f64, other: f64) -> bool {
    one.to_bits() == other.to_bits()
        || (one.is_nan() && other.is_nan())
        || (one - other).abs() <= 1e-9 * one.abs().max(other.abs())
}

pub fn is_all_same(expected: &Values, found: &Values) -> bool {
    let (Ok(expected), Ok(found)) = (expected, found) else { return expected == found };
    expected.len() == found.len()
        && expected.iter().zip(found).all(|((name, values), (other, others))| {
            let mut pairs = values.iter().zip(others);
            name == other
                && values.len() == others.len()
                && pairs.all(|(one, other)| is_same(one.0, other.0) && is_same(one.1, other.1))
        })
}

pub fn seed() -> u64 {
    std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(SEED)
}

/// A Prometheus without samples, which reads those of `world`.
pub async fn reading_from(world: &World) -> Prometheus {
    let (url, token) = (world.admin.url("/api/v1/prometheus/read"), world.admin.token.clone().unwrap());
    let settings = format!(
        "remote_read:\n  - url: {url}\n    read_recent: true\n    authorization: {{ credentials: {token:?} }}\n"
    );
    Prometheus::start("", &settings).await
}

#[tokio::test]
async fn queries_have_the_answers_that_prometheus_gives_from_its_own_storage() {
    let world = World::start().await;
    let seed = seed();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    // Whole hours, of which blocks are made.
    let begin = (world.clock.now().timestamp_millis() / HOUR - 6) * HOUR;
    let mut all = written(&mut rng, begin);
    let sent = all.iter().map(|(labels, samples)| {
        let labels: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        series(&labels, samples)
    });
    assert_eq!(write(&world.admin, sent.collect()).await.status, 204);
    let boiler = event(&world, "boiler").await;
    let samples: Vec<_> =
        (0..500).map(|index| (f64::from(index % 37), begin + i64::from(index) * 15_000)).collect();
    let items: Vec<_> = samples
        .iter()
        .map(|(value, time)| {
            let time = chrono::DateTime::from_timestamp_millis(*time).unwrap();
            json!({"value": value, "event_public_id": boiler, "timestamp": time.to_rfc3339()})
        })
        .collect();
    world.admin.post(&format!("{DATAPOINTS}/batch"), json!({"datapoints": items})).await.expect(201);
    let labels = [("__name__", "signalbox_value"), ("channel", "boiler"), ("unit", "°C")];
    all.push((labels.map(|(name, value)| (name, value.to_owned())).to_vec(), samples));

    let own = Prometheus::start(&openmetrics(&all), "{}").await;
    let ours = reading_from(&world).await;
    let mut answered = 0;
    for number in 0..QUERIES {
        let query = expression(&mut rng);
        let seconds = |time: i64| format!("{}.{:03}", time / 1000, time % 1000);
        let at = begin + rng.random_range(0..3 * HOUR + HOUR / 2);
        let (path, times) = if number % 2 == 0 {
            ("query", vec![("time", seconds(at))])
        } else {
            let step = one_of(&mut rng, &["13s", "60s", "300s"]);
            (
                "query_range",
                vec![("start", seconds(at)), ("end", seconds(at + HOUR)), ("step", step.to_owned())],
            )
        };
        let asked = [vec![("query", query.clone())], times].concat();
        let (expected, mut found) = tokio::join!(own.get(path, &asked), ours.get(path, &asked));
        // A read that a busy machine refuses or cuts off for a moment is a warning, and asked again.
        for _ in 0..3 {
            if found.get("warnings").is_some() {
                println!("asked again: {found}");
                found = ours.get(path, &asked).await;
            }
        }
        let (expected, found) = (values(&expected), values(&found));
        assert!(
            is_all_same(&expected, &found),
            "seed {seed}: {asked:?}\nexpected {expected:?}\nfound    {found:?}"
        );
        answered += usize::from(expected.is_ok_and(|series| !series.is_empty()));
    }
    assert!(answered > QUERIES / 3, "seed {seed}: only {answered} queries had an answer");
    world.finish().await;
}
