//! Ingestion with 1,000 enabled rules beside ingestion without rules, in turns: batches of 1,000 over 500 events at 8
//! connections. A tenth of the rules match every value, once a minute.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use reqwest::Method;
use serde_json::json;
use sqlx::PgPool;

use super::points;
use crate::{
    load, report, size,
    system::{Api, Role, Servers, Signalbox, wait_until},
};

const CONNECTIONS: usize = 8;
const EVENTS: usize = 500;
const RULES: usize = 1000;
/// Every so many rules, one matches.
const MATCHING: usize = 10;

pub async fn run() -> anyhow::Result<()> {
    let count = size::of("BENCH_POINTS", 500_000)? as usize;
    let rounds = size::of("BENCH_ROUNDS", 3)?;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let pool = servers.database().await?;
    let events = points::add_events(&api, EVENTS).await?;
    let rules = add_rules(&api, &events).await?;
    let requests = points::requests(&api, &events, count);
    let (mut rates, mut delays): ([Vec<f64>; 2], Vec<f64>) = Default::default();
    for round in 0..=rounds {
        for (rates, enabled) in rates.iter_mut().zip([false, true]) {
            for rule in &rules {
                let change = json!({ "enabled": enabled });
                api.call(Method::PUT, &format!("/api/v1/rules/{rule}"), Some(&change)).await?;
            }
            let load = load::send_all(api.address, CONNECTIONS, &requests, 201)?;
            let sent = Instant::now();
            wait_until_judged(&pool).await?;
            // The first round warms up.
            if round > 0 {
                rates.push(load.rate * points::BATCH as f64);
                delays.extend(enabled.then(|| sent.elapsed().as_secs_f64() * 1000.0));
            }
        }
    }
    let [without, with] = &rates;
    report::title("monitoring: ingestion with 1,000 enabled rules");
    report::figure("without rules", report::median(without.iter().copied()), "points/s");
    report::figure("with rules", report::median(with.iter().copied()), "points/s");
    report::ratio(
        "with to without",
        report::median(with.iter().zip(without).map(|(with, without)| with / without)),
        0.8,
    );
    report::figure("until all were judged after that", report::median(delays), "ms");
    Ok(())
}

async fn add_rules(api: &Api, events: &[String]) -> anyhow::Result<Vec<String>> {
    let mut ids = Vec::with_capacity(RULES);
    for number in 0..RULES {
        let threshold = if number.is_multiple_of(MATCHING) { 0 } else { 1000 };
        let rule = json!({"name": format!("rule {number}"), "event_public_id": events[number % events.len()],
            "operator": "gt", "threshold": threshold, "action_type": "log", "cooldown_seconds": 60});
        let made = api.post("/api/v1/rules", &rule).await?;
        ids.push(made["public_id"].as_str().context("a rule without an id")?.to_owned());
    }
    Ok(ids)
}

/// Waits until rules have judged all that came in.
async fn wait_until_judged(pool: &PgPool) -> anyhow::Result<()> {
    let judged = "SELECT NOT EXISTS (SELECT FROM ops.rule_shards s, log_head h
                   WHERE h.log = 'datapoints' AND s.position < h.position)";
    let judged = || async move { Ok(sqlx::query_scalar(judged).fetch_one(pool).await?) };
    wait_until("the evaluation of rules", Duration::from_secs(300), judged).await
}
