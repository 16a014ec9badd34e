//! A backlog of past events is delivered to receivers that take 20 ms for each, by 1, 2 and 4 worker processes. The
//! installation makes a limited number of requests at the same time: by default ten, so that no more than 500 in a second
//! can be delivered, however many workers there are; then 128, of which all workers take a share (`BENCH_IN_FLIGHT=10,128`).
//! Also what a delivery costs each process in time of the processors, queueing included.

use std::{env, time::Duration};

use anyhow::Context as _;

use super::Rest;
use crate::{
    report, size,
    system::{Program, Role, Servers, Signalbox, own_seconds, seconds},
    webhooks::{
        EVENTS, backlog,
        sink::{Behaviour, Sink},
    },
};

const WORKERS: [usize; 3] = [1, 2, 4];
const LATENCY: Duration = Duration::from_millis(20);
/// Requests at the same time: as many as by default, and more.
const IN_FLIGHT: &str = "10,128";
const SUBSCRIPTIONS: usize = 16;

const SPENDERS: [&str; 7] =
    ["workers", "PostgreSQL", "nats-server", "gateway", "commands", "read models", "receivers and client"];

/// Seconds of the processors that each has spent.
fn spent(servers: &Servers, rest: &Rest, workers: &[Program]) -> anyhow::Result<[f64; 7]> {
    let mut by_workers = 0.0;
    for worker in workers {
        by_workers += seconds(worker.pid())?;
    }
    let [postgres, nats] = servers.cpu_seconds()?;
    let of = |program: &Program| seconds(program.pid());
    Ok([
        by_workers,
        postgres,
        nats,
        of(&rest.gateway)?,
        of(&rest.commands)?,
        of(&rest.projections)?,
        own_seconds()?,
    ])
}

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let experiments = size::of("BENCH_DELIVERIES", 16_000)? as usize / (SUBSCRIPTIONS * EVENTS.len());
    let deliveries = experiments * SUBSCRIPTIONS * EVENTS.len();
    let in_flight = env::var("BENCH_IN_FLIGHT").unwrap_or_else(|_| IN_FLIGHT.to_owned());
    let rounds = size::of("BENCH_ROUNDS", 2)?;
    let servers = Servers::start().await?;
    let rest = Rest::start(&servers).await?;
    let sink = Sink::start(Behaviour::Delay(LATENCY)).await?;
    backlog::record_experiments(&rest.api, experiments).await?;
    for in_flight in in_flight.split(',') {
        let in_flight: usize = in_flight.parse().context("BENCH_IN_FLIGHT is not a list of numbers")?;
        let bound = in_flight as f64 / LATENCY.as_secs_f64();
        report::title(&format!(
            "workers: deliveries to {SUBSCRIPTIONS} receivers that take {LATENCY:?}, {in_flight} at the same time: at most {bound}/s"
        ));
        let each = in_flight.div_ceil(SUBSCRIPTIONS).to_string();
        let mut alone = None;
        for count in WORKERS {
            let settings = Signalbox::new(&servers, Role::Workers)?
                .with("SIGNALBOX_WEBHOOKS__CONCURRENT_REQUESTS", &in_flight.to_string())
                .with("SIGNALBOX_WEBHOOKS__CONCURRENT_PER_SUBSCRIPTION", &each);
            let workers = (0..count).map(|_| settings.start()).collect::<anyhow::Result<Vec<_>>>()?;
            let mut rates = Vec::new();
            let mut before = spent(&servers, &rest, &workers)?;
            for round in 0..=rounds {
                let name = format!("{in_flight}/{count}/{round}");
                let work = (SUBSCRIPTIONS, deliveries);
                let rate = backlog::deliver_queued(&rest.api, &sink, work, &name).await?;
                // The first round warms up.
                match round {
                    0 => before = spent(&servers, &rest, &workers)?,
                    _ => rates.push(rate),
                }
            }
            let after = spent(&servers, &rest, &workers)?;
            let rate = report::median(rates);
            let gain = rate / *alone.get_or_insert(rate);
            let unit = format!("deliveries/s, {gain:.2} × one, {:.2} of the bound", rate / bound);
            report::figure(&format!("{count} workers"), rate, &unit);
            let each = |at: usize| (after[at] - before[at]) * 1e6 / (rounds as usize * deliveries) as f64;
            let parts = SPENDERS.iter().enumerate().map(|(at, name)| format!("{name} {:.0}", each(at)));
            println!("    µs of a processor per delivery: {}", parts.collect::<Vec<_>>().join(", "));
            workers.into_iter().for_each(|worker| worker.stop());
        }
    }
    Ok(())
}
