//! Webhooks: deliveries per second, beside a bare loop of reqwest in the same run; the effect of bad receivers on the
//! others; the time from an accepted datapoint to the receiver.
//!
//! `BENCH_DELIVERIES`, `BENCH_ROUNDS`, `BENCH_SECONDS` of each load. `BENCH_PARTS=throughput,bad` runs some of it.

pub mod backlog;
mod bad;
mod latency;
pub mod sink;
mod throughput;

use std::env;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use crate::system::Api;

const PARTS: [&str; 3] = ["throughput", "bad", "latency"];
/// The event types of an experiment.
pub const EVENTS: [&str; 2] = ["experiment.started", "experiment.stopped"];

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let chosen = env::var("BENCH_PARTS").unwrap_or_else(|_| PARTS.join(","));
    for part in chosen.split(',').map(str::trim) {
        match part {
            "throughput" => throughput::run().await?,
            "bad" => bad::run().await?,
            "latency" => latency::run().await?,
            unknown => bail!("there is no part {unknown}: choose among {}", PARTS.join(", ")),
        }
    }
    Ok(())
}

/// Makes a subscription at `url`; returns its id.
pub async fn subscribe(api: &Api, url: &str, events: &[&str]) -> anyhow::Result<String> {
    let webhook = json!({"url": url, "secret": "a shared secret", "events": events});
    public_id(&api.post("/api/v1/webhooks", &webhook).await?)
}

/// The id in an answer.
pub fn public_id(made: &Value) -> anyhow::Result<String> {
    Ok(made["public_id"].as_str().context("no id")?.to_owned())
}

/// Starts an experiment and stops it: two events.
pub async fn experiment(api: &Api, number: usize) -> anyhow::Result<()> {
    let made = api.post("/api/v1/experiments", &json!({"name": format!("bench {number}")})).await?;
    let stop = format!("/api/v1/experiments/{}/stop", public_id(&made)?);
    api.call(reqwest::Method::PUT, &stop, None).await?;
    Ok(())
}
