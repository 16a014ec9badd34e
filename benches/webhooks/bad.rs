use std::{collections::HashMap, time::Duration};

use chrono::DateTime;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    EVENTS, experiment,
    sink::{Arrival, Behaviour, Sink},
    subscribe,
};
use crate::{
    report, size,
    system::{Api, Role, Servers, Signalbox},
};

const GOOD: usize = 3;
const BAD: [Behaviour; 5] =
    [Behaviour::Hang, Behaviour::Fail, Behaviour::Reset, Behaviour::Redirect, Behaviour::Flood];
/// Between two experiments, each of which is two events.
const INTERVAL: Duration = Duration::from_millis(100);

/// How long an event takes to the good receivers, before and while there are five bad ones.
pub async fn run() -> anyhow::Result<()> {
    let seconds = size::of("BENCH_SECONDS", 3)? as usize * 10;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let good = Sink::start(Behaviour::Accept).await?;
    for number in 0..GOOD {
        subscribe(&api, &good.url(&number.to_string()), &EVENTS).await?;
    }
    // Warms up.
    load(&api, &good, 0, 20).await?;
    let count = seconds * 10;
    let without = latencies(&load(&api, &good, 1000, count).await?);
    let mut bad = Vec::new();
    for (number, behaviour) in BAD.into_iter().enumerate() {
        let sink = Sink::start(behaviour).await?;
        subscribe(&api, &sink.url(&number.to_string()), &EVENTS).await?;
        bad.push(sink);
    }
    let with = latencies(&load(&api, &good, 100_000, count).await?);
    report::title("webhooks: from the event to a good receiver; while five are bad, without them");
    for (name, at) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        let quantile = |latencies: &[f64]| report::quantile(latencies.iter().copied(), at);
        report::pair(name, quantile(&with), quantile(&without), "ms");
        if name == "p95" {
            report::bounded("p95, ratio", quantile(&with) / quantile(&without), "", 1.5);
        }
    }
    for (sink, behaviour) in bad.iter().zip(BAD) {
        report::figure(
            &format!("requests to the one that would {behaviour:?}"),
            sink.take().len() as f64,
            "",
        );
    }
    Ok(())
}

/// The deliveries of `count` experiments to the receiver.
async fn load(api: &Api, good: &Sink, first: usize, count: usize) -> anyhow::Result<Vec<Arrival>> {
    good.take();
    for number in first..first + count {
        experiment(api, number).await?;
        sleep(INTERVAL).await;
    }
    let expected = count * EVENTS.len() * GOOD;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    let mut arrivals = Vec::new();
    while arrivals.len() < expected && tokio::time::Instant::now() < deadline {
        arrivals.extend(good.take());
        sleep(Duration::from_millis(20)).await;
    }
    anyhow::ensure!(arrivals.len() >= expected, "only {} of {expected} deliveries came", arrivals.len());
    Ok(arrivals)
}

/// Milliseconds from the time in each body to its arrival; of repetitions the first.
fn latencies(arrivals: &[Arrival]) -> Vec<f64> {
    let mut first = HashMap::<(usize, String), f64>::new();
    for (index, (time, body)) in arrivals.iter().enumerate() {
        let Ok(body) = serde_json::from_slice::<Value>(body) else { continue };
        let happened = body["time"].as_str().and_then(|text| DateTime::parse_from_rfc3339(text).ok());
        let Some(happened) = happened else { continue };
        let latency = time * 1000.0 - happened.timestamp_micros() as f64 / 1000.0;
        first.insert((index, body["id"].to_string()), latency);
    }
    first.into_values().collect()
}
