//! `POST /datapoints` of one point at 32 connections, beside a plain server that inserts a row, in turns.

use std::time::Duration;

use serde_json::json;

use super::points;
use crate::{
    commands::start_peer,
    load::{self, Load},
    report, size,
    system::{Role, Servers, Signalbox},
};

const CONNECTIONS: usize = 32;

pub async fn run() -> anyhow::Result<()> {
    let duration = Duration::from_secs(size::of("BENCH_SECONDS", 3)?);
    let rounds = size::of("BENCH_ROUNDS", 3)?;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let (_theirs, peer) = start_peer(&servers).await?;
    let events = points::add_events(&api, 1).await?;
    let point = json!({"value": 21.5, "event_public_id": events[0]}).to_string();
    let request = load::post("/api/v1/datapoints", api.token(), &point);
    let turn = |address| load::run(address, CONNECTIONS, duration, &request, 201);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (our_load, their_load) = (turn(api.address)?, turn(peer)?);
        // The first round warms up.
        if round > 0 {
            ours.push(our_load);
            theirs.push(their_load);
        }
    }
    report::title("monitoring: POST /datapoints at 32 connections; signalbox, plain INSERT");
    let rate = |loads: &[Load]| report::median(loads.iter().map(|load| load.rate));
    report::pair("throughput", rate(&ours), rate(&theirs), "requests/s");
    let p99 = |loads: &[Load]| {
        report::quantile(loads.iter().flat_map(|load| load.milliseconds.iter().copied()), 0.99)
    };
    report::pair("p99", p99(&ours), p99(&theirs), "ms");
    let ratios = ours.iter().zip(&theirs).map(|(ours, theirs)| ours.rate / theirs.rate);
    report::ratio("throughput, ratio", report::median(ratios), 0.6);
    Ok(())
}
