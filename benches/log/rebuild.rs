//! Every read model is built again by the command line while the system is used; no request may fail, and at the end each
//! read model is as its log says.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::{
    mixed::{Load, Outcome},
    seed::Subjects,
};
use crate::{
    report, size,
    system::{Api, Signalbox},
    webhooks::sink::Sink,
};

const NAMES: [&str; 7] =
    ["automation", "datapoints", "extraction", "fleet", "identity", "monitoring", "transfer"];
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs it.
pub async fn run(
    program: &Signalbox,
    api: &Api,
    subjects: &Arc<Subjects>,
    sink: &Sink,
) -> anyhow::Result<()> {
    let seconds = size::of("BENCH_SECONDS", 10)?;
    sink.take();
    let load = Load::start(api, subjects, 1_000_000).await?;
    sleep(Duration::from_secs(seconds)).await;
    let without = load.end().await?;
    let load = Load::start(api, subjects, 2_000_000).await?;
    let mut rates = Vec::new();
    for name in NAMES {
        let start = Instant::now();
        let rebuilt = one(program.run_well(&["projections", "rebuild", name, "--json"])?)?;
        let took = start.elapsed().as_secs_f64();
        eprintln!("rebuilt in {took:.1} s: {rebuilt}");
        ensure!(rebuilt["differences"] == 0, "{name} was not as its log says: {rebuilt}");
        let count = rebuilt["events"].as_f64().or(rebuilt["points"].as_f64()).unwrap_or_default();
        rates.push((name, count / took, took));
    }
    let with = load.end().await?;
    let published = (without.published + with.published) * subjects.webhooks.len();
    timeout(TIMEOUT, sink.until(published)).await.context("not all deliveries arrived")??;
    print(&rates, &without, &with);
    report::figure("deliveries that arrived", sink.take().len() as f64, &format!("of {published}"));
    // Fails unless all are equal.
    let compared = program.run_well(&["projections", "compare", "--json"])?;
    report::figure("read models that are as their log says", compared.len() as f64, "");
    let failed = [without.failures, with.failures].concat();
    ensure!(
        failed.is_empty(),
        "{} requests failed; the first ones: {:?}",
        failed.len(),
        &failed[..failed.len().min(5)]
    );
    Ok(())
}

fn one(mut lines: Vec<Value>) -> anyhow::Result<Value> {
    ensure!(lines.len() == 1, "one line was expected of {lines:?}");
    Ok(lines.remove(0))
}

fn print(rates: &[(&str, f64, f64)], without: &Outcome, with: &Outcome) {
    report::title("log: rebuild of every read model under load");
    for (name, rate, took) in rates {
        let of = if *name == "datapoints" { "datapoints" } else { "events" };
        report::figure(name, *rate, &format!("{of}/s in {took:.1} s"));
    }
    report::title("log: requests while read models are rebuilt, without that");
    let count = |outcome: &Outcome| outcome.milliseconds.len() as f64;
    report::pair("requests", count(with), count(without), "");
    for (name, at) in [("p50", 0.5), ("p99", 0.99), ("slowest", 1.0)] {
        let quantile = |outcome: &Outcome| report::quantile(outcome.milliseconds.iter().copied(), at);
        report::pair(name, quantile(with), quantile(without), "ms");
    }
    report::pair("commands that showed later", with.eventual as f64, without.eventual as f64, "");
    report::bounded("failed", (with.failures.len() + without.failures.len()) as f64, "requests", 0.0);
}
