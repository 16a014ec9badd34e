//! Datapoints: in, out, on disk and live, beside PostgreSQL by itself and InfluxDB 1.x (if `influxd` is installed).
//!
//! `BENCH_POINTS` of an ingestion, `BENCH_ROUNDS`, `BENCH_SECONDS` of single requests, `BENCH_FEW` and `BENCH_MANY` rows for
//! reads, `BENCH_CSV_ROWS`, `BENCH_SUBSCRIBERS`. `BENCH_PARTS=ingest,single` runs some of it.

mod export;
mod influx;
mod ingest;
pub mod points;
mod reads;
mod rules;
mod sequences;
mod single;
mod sockets;

use std::env;

use anyhow::bail;

const PARTS: [&str; 7] = ["ingest", "single", "reads", "export", "sockets", "sequences", "rules"];

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let chosen = env::var("BENCH_PARTS").unwrap_or_else(|_| PARTS.join(","));
    for part in chosen.split(',').map(str::trim) {
        match part {
            "ingest" => ingest::run().await?,
            "single" => single::run().await?,
            "reads" => reads::run().await?,
            "export" => export::run().await?,
            "sockets" => sockets::run().await?,
            "sequences" => sequences::run().await?,
            "rules" => rules::run().await?,
            unknown => bail!("there is no part {unknown}: choose among {}", PARTS.join(", ")),
        }
    }
    Ok(())
}
