//! The register at size: the log of a system with real events of all its services is carried into an empty one, beside `COPY`
//! of the same rows; `verify` has to find what was done to it; read models are rebuilt while the system is used.
//!
//! `BENCH_EVENTS` in the log, `BENCH_POINTS` of datapoints, `BENCH_ROUNDS`, `BENCH_SAMPLE` of resources that are
//! compared, `BENCH_SECONDS` of the load without a rebuild. `BENCH_PARTS=carry,rebuild` runs some of it; `verify`
//! belongs to `carry`.

mod alike;
mod carry;
mod copy;
mod history;
mod mixed;
mod rebuild;
mod seed;
mod traces;
mod verify;

use std::{env, sync::Arc};

use anyhow::ensure;
use signalbox_event_store::head_position;

use crate::{
    report, size,
    system::{Role, Servers, Signalbox},
    webhooks::sink::{Behaviour, Sink},
};

const PARTS: [&str; 2] = ["carry", "rebuild"];

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let chosen = env::var("BENCH_PARTS").unwrap_or_else(|_| PARTS.join(","));
    let chosen: Vec<_> = chosen.split(',').map(str::trim).collect();
    ensure!(chosen.iter().all(|part| PARTS.contains(part)), "the parts are {}", PARTS.join(" and "));
    let events = size::of("BENCH_EVENTS", 100_000)?;
    let servers = Servers::start().await?;
    let pool = servers.database().await?;
    let sink = Sink::start(Behaviour::Accept).await?;
    let ours = Signalbox::new(&servers, Role::All)?;
    let (program, api) = ours.start_and_log_in().await?;
    let subjects = Arc::new(seed::plant(&api, &sink).await?);
    let points = size::of("BENCH_POINTS", events)?;
    seed::record(&api, &subjects, points as usize)?;
    // Its workers would add events to the traces.
    program.stop();
    let written = traces::write(&pool, events as i64).await?;
    let (_program, api) = ours.start_and_log_in().await?;
    let folded = history::settle(&pool, history::Until::Folded).await?;
    history::settle(&pool, history::Until::Quiet).await?;
    report::title(&format!("log: {} events and {points} datapoints", head_position(&pool).await?));
    report::figure("written by concurrent commands", written, "events/s");
    report::figure("into the read models, at a start", folded, "events/s");
    if chosen.contains(&"carry") {
        carry::run(&servers, &ours, &api, &pool).await?;
    }
    if chosen.contains(&"rebuild") {
        rebuild::run(&ours, &api, &subjects, &sink).await?;
    }
    Ok(())
}
