//! Rebuild of all read models, beside COPY of their rows into tables of the same shape with the same indexes.
//! `BENCH_EVENTS`, `BENCH_ROUNDS`.

mod copy;
mod events;

use std::time::Instant;

use anyhow::ensure;
use signalbox_messaging::Bus;
use signalbox_projections::{
    Projection, RebuildReport, Runner, identity::IdentityProjection, rebuild, transfer::TransferProjection,
};
use sqlx::PgPool;

use crate::{report, size, system::Servers};

/// Runs it.
pub async fn run() -> anyhow::Result<()> {
    let (events, rounds) = (size::of("BENCH_EVENTS", 100_000)?, size::of("BENCH_ROUNDS", 3)?);
    let servers = Servers::start().await?;
    let (pool, bus) = (servers.database().await?, Bus::connect(&servers.nats_url).await?);
    let events = events::write(&pool, events).await?;
    let start = Instant::now();
    fold::<IdentityProjection>(&pool, &bus).await?;
    fold::<TransferProjection>(&pool, &bus).await?;
    let live = events as f64 / start.elapsed().as_secs_f64();
    sqlx::query("ANALYZE").execute(&pool).await?;

    let (mut ours, mut theirs, mut rows) = (Vec::new(), Vec::new(), 0);
    for round in 0..rounds {
        let start = Instant::now();
        rows = rebuild_all(&pool).await?;
        ours.push(start.elapsed().as_secs_f64());
        theirs.push(copy::seconds(&pool).await?);
        eprintln!("{round}: rebuilt in {:.2?} s, copied in {:.2?} s", ours.last(), theirs.last());
    }
    let ratios: Vec<_> = ours.iter().zip(&theirs).map(|(ours, theirs)| theirs / ours).collect();
    let rate = |count: f64, seconds: Vec<f64>| count / report::median(seconds);
    report::title(&format!(
        "rebuild: all read models from {events} events, equal row by row; COPY of {rows} rows"
    ));
    report::figure("live, folded", live, "events/s");
    report::figure("rebuilt", rate(events as f64, ours.clone()), "events/s");
    report::pair("rebuilt, copied", rate(rows as f64, ours), rate(rows as f64, theirs), "rows/s");
    report::ratio("rows, ratio", report::median(ratios), 0.25);
    Ok(())
}

async fn fold<P: Projection>(pool: &PgPool, bus: &Bus) -> anyhow::Result<()> {
    let mut runner = Runner::<P>::start(pool.clone(), bus.clone()).await?;
    while runner.step().await? > 0 {}
    Ok(())
}

async fn rebuild_all(pool: &PgPool) -> anyhow::Result<i64> {
    let reports = [rebuild::<IdentityProjection>(pool).await?, rebuild::<TransferProjection>(pool).await?];
    let differences: i64 = reports.iter().map(|report: &RebuildReport| report.differences).sum();
    ensure!(differences == 0, "{differences} rows differ from the live ones");
    Ok(reports.iter().map(|report| report.rows).sum())
}
