//! Datapoints: in, out, on disk and live, beside PostgreSQL by itself, InfluxDB 1.x, VictoriaMetrics and Prometheus.
//!
//! `BENCH_POINTS` of an ingestion, `BENCH_ROUNDS`, `BENCH_SECONDS` of single requests, `BENCH_FEW` and `BENCH_MANY` rows for
//! reads, `BENCH_CSV_ROWS`, `BENCH_SUBSCRIBERS`, `BENCH_YEAR` points of one channel, `BENCH_HOURS` and `BENCH_QUERIES` of
//! questions. `BENCH_PARTS=ingest,single` runs some of it.

mod beside;
mod devops;
mod export;
mod ingest;
mod lines;
pub mod points;
mod reads;
mod remote_write;
mod rules;
mod sequences;
mod single;
mod sockets;
mod tsbs;
mod year;

use std::env;

use anyhow::bail;

const PARTS: [&str; 11] = [
    "ingest",
    "single",
    "reads",
    "export",
    "sockets",
    "sequences",
    "rules",
    "lines",
    "remote-write",
    "year",
    "tsbs",
];

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
            "lines" => lines::run().await?,
            "remote-write" => remote_write::run().await?,
            "year" => year::run().await?,
            "tsbs" => tsbs::run().await?,
            unknown => bail!("there is no part {unknown}: choose among {}", PARTS.join(", ")),
        }
    }
    Ok(())
}
