use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tokio::{task::JoinSet, time::timeout};

use super::{
    EVENTS, experiment,
    sink::{Manner, Sink},
    subscribe,
};
use crate::{
    report, size,
    system::{Role, Servers, Signalbox},
};

/// Enough for all ten slots, of which each subscription may hold three.
const SUBSCRIPTIONS: usize = 4;
const CONNECTIONS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(300);

/// A backlog of past events is delivered to one fast receiver, in turns with a bare loop that posts as many bodies of that
/// size. Signing, claiming, recording and the read model are in our time.
pub async fn run() -> anyhow::Result<()> {
    let deliveries = size::of("BENCH_DELIVERIES", 8000)? as usize;
    let rounds = size::of("BENCH_ROUNDS", 3)? as usize;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let sink = Sink::start(Manner::Accept).await?;
    for number in 0..deliveries / (SUBSCRIPTIONS * EVENTS.len()) {
        experiment(&api, number).await?;
    }
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let mut made = Vec::new();
        for number in 0..SUBSCRIPTIONS {
            made.push(subscribe(&api, &sink.url(&format!("{round}/{number}")), &EVENTS).await?);
        }
        for webhook in &made {
            let from = json!({"from": "2020-01-01T00:00:00Z"});
            api.post(&format!("/api/v1/webhooks/{webhook}/replay"), &from).await?;
        }
        let came = timeout(PATIENCE, sink.until(deliveries)).await;
        came.context("the deliveries did not come in time")??;
        let arrivals = sink.take();
        let times = || arrivals.iter().map(|(time, _)| *time);
        let took = times().fold(f64::MIN, f64::max) - times().fold(f64::MAX, f64::min);
        let body = arrivals.first().map(|(_, body)| body.clone()).unwrap_or_default();
        let bare = bare_loop(&sink, deliveries, &body).await?;
        sink.take();
        for webhook in made {
            api.call(reqwest::Method::DELETE, &format!("/api/v1/webhooks/{webhook}"), None).await?;
        }
        // The first round warms up.
        if round > 0 {
            ours.push(deliveries as f64 / took);
            theirs.push(bare);
        }
    }
    report::title(
        "webhooks: deliveries to a fast receiver; signalbox, bare reqwest loop with 10 connections",
    );
    report::pair("throughput", report::median(ours.clone()), report::median(theirs.clone()), "requests/s");
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs);
    report::ratio("throughput, ratio", report::median(ratios), 0.5);
    Ok(())
}

/// Requests in a second.
async fn bare_loop(sink: &Sink, count: usize, body: &[u8]) -> anyhow::Result<f64> {
    let client = reqwest::Client::builder().no_proxy().http1_only().build()?;
    let begun = Instant::now();
    let mut loops = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (client, url, body) = (client.clone(), sink.url("bare"), body.to_vec());
        loops.spawn(async move {
            for _ in 0..count / CONNECTIONS {
                client.post(&url).body(body.clone()).send().await?.error_for_status()?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = loops.join_next().await {
        ended??;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}
