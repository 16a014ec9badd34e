//! Batches of 1,000 over 500 events at 16 connections, which the gateways share.

use std::{net::SocketAddr, thread, time::Instant};

use anyhow::bail;

use super::Rest;
use crate::{
    load,
    monitoring::points,
    report, size,
    system::{Role, Servers, Signalbox},
};

const CONNECTIONS: usize = 16;
const EVENTS: usize = 500;

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let count = size::of("BENCH_POINTS", 500_000)? as usize;
    let rounds = size::of("BENCH_ROUNDS", 3)?;
    let servers = Servers::start().await?;
    let rest = Rest::start(&servers).await?;
    let (_second, other) = Signalbox::new(&servers, Role::Gateway)?.start_and_log_in().await?;
    let events = points::add_events(&rest.api, EVENTS).await?;
    let requests = points::requests(&rest.api, &events, count);
    let both = [rest.api.address, other.address];
    let mut rates = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (rates, gateways) in rates.iter_mut().zip([&both[..1], &both]) {
            let rate = send(gateways, &requests)? * points::BATCH as f64;
            // The first round warms up.
            if round > 0 {
                rates.push(rate);
            }
        }
    }
    report::title("workers: batches of 1,000 datapoints at 16 connections");
    let [one, two] = rates.map(report::median);
    report::figure("1 gateway", one, "points/s");
    report::figure("2 gateways", two, &format!("points/s, {:.2} × one", two / one));
    Ok(())
}

/// Requests in a second, shared by `gateways`.
fn send(gateways: &[SocketAddr], requests: &[Vec<u8>]) -> anyhow::Result<f64> {
    let start = Instant::now();
    let connections = CONNECTIONS / gateways.len();
    thread::scope(|scope| {
        let shares = requests.chunks(requests.len().div_ceil(gateways.len()));
        let senders: Vec<_> = gateways
            .iter()
            .zip(shares)
            .map(|(gateway, share)| scope.spawn(move || load::send_all(*gateway, connections, share, 201)))
            .collect();
        for sender in senders {
            match sender.join() {
                Ok(sent) => sent.map(|_| ())?,
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(requests.len() as f64 / start.elapsed().as_secs_f64())
    })
}
