//! A backlog of past events is delivered to a receiver that takes 20 ms for each. The installation makes at most ten
//! requests at the same time, so it cannot deliver more than 500 in a second, however many workers there are: the
//! gain of more workers is that one continues when another one ends.

use std::time::Duration;

use super::Rest;
use crate::{
    report, size,
    system::{Role, Servers, Signalbox},
    webhooks::{
        backlog,
        sink::{Behaviour, Sink},
    },
};

const WORKERS: [usize; 3] = [1, 2, 4];
const LATENCY: Duration = Duration::from_millis(20);
/// Requests that the installation makes at the same time.
const SLOTS: f64 = 10.0;

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let deliveries = size::of("BENCH_DELIVERIES", 8000)? as usize;
    let rounds = size::of("BENCH_ROUNDS", 2)?;
    let servers = Servers::start().await?;
    let rest = Rest::start(&servers).await?;
    let sink = Sink::start(Behaviour::Delay(LATENCY)).await?;
    let deliveries = backlog::record(&rest.api, deliveries).await?;
    let bound = SLOTS / LATENCY.as_secs_f64();
    report::title(&format!("workers: deliveries to a receiver that takes {LATENCY:?}; at most {bound}/s"));
    for count in WORKERS {
        let settings = Signalbox::new(&servers, Role::Workers)?;
        let workers = (0..count).map(|_| settings.start()).collect::<anyhow::Result<Vec<_>>>()?;
        let mut rates = Vec::new();
        for round in 0..=rounds {
            let name = format!("{count}/{round}");
            let delivered = backlog::deliver(&rest.api, &sink, deliveries, &name).await?;
            // The first round warms up.
            if round > 0 {
                rates.push(delivered.rate);
            }
        }
        let rate = report::median(rates);
        report::figure(
            &format!("{count} workers"),
            rate,
            &format!("deliveries/s, {:.2} of the bound", rate / bound),
        );
        workers.into_iter().for_each(|worker| worker.stop());
    }
    Ok(())
}
