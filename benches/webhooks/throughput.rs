use std::time::Instant;

use tokio::task::JoinSet;

use super::{
    backlog,
    sink::{Behaviour, Sink},
};
use crate::{
    report, size,
    system::{Role, Servers, Signalbox},
};

const CONNECTIONS: usize = 10;

/// A backlog of past events is delivered to one fast receiver, in turns with a bare loop that posts as many bodies of that
/// size. Signing, claiming, recording and the read model are in our time.
pub async fn run() -> anyhow::Result<()> {
    let deliveries = size::of("BENCH_DELIVERIES", 8000)? as usize;
    let rounds = size::of("BENCH_ROUNDS", 3)? as usize;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let sink = Sink::start(Behaviour::Accept).await?;
    let deliveries = backlog::record(&api, deliveries).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let delivered = backlog::deliver(&api, &sink, deliveries, &round.to_string()).await?;
        let bare = bare_loop(&sink, deliveries, &delivered.body).await?;
        sink.take();
        // The first round warms up.
        if round > 0 {
            ours.push(delivered.rate);
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
