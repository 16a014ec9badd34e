//! The effect of more processes: deliveries by 1, 2 and 4 workers, pages of documents by 1 and 2, and datapoints
//! through 1 and 2 gateways, all on this one machine.
//!
//! `BENCH_DELIVERIES`, `BENCH_DOCUMENTS` of 20 pages, `BENCH_SCANS`, `BENCH_POINTS`, `BENCH_ROUNDS`. `BENCH_PARTS=deliveries,extraction` runs
//! some of it.

mod deliveries;
mod extraction;
mod ingestion;
mod pages;

use std::env;

use anyhow::bail;

use crate::system::{Api, Program, Role, Servers, Signalbox};

const PARTS: [&str; 3] = ["deliveries", "extraction", "ingestion"];

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let chosen = env::var("BENCH_PARTS").unwrap_or_else(|_| PARTS.join(","));
    for part in chosen.split(',').map(str::trim) {
        match part {
            "deliveries" => deliveries::run().await?,
            "extraction" => extraction::run().await?,
            "ingestion" => ingestion::run().await?,
            unknown => bail!("there is no part {unknown}: choose among {}", PARTS.join(", ")),
        }
    }
    Ok(())
}

/// One process each of those roles that are not multiplied.
struct Rest {
    commands: Program,
    projections: Program,
    gateway: Program,
    api: Api,
}

impl Rest {
    async fn start(servers: &Servers) -> anyhow::Result<Self> {
        let start = |role| Signalbox::new(servers, role)?.start();
        let (commands, projections) = (start(Role::Commands)?, start(Role::Projections)?);
        let (gateway, api) = Signalbox::new(servers, Role::Gateway)?.start_and_log_in().await?;
        Ok(Self { commands, projections, gateway, api })
    }
}
