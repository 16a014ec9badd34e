//! Batches of 1,000 over 500 events at 8 connections, durable, beside `COPY` over one connection and InfluxDB, in turns;
//! and what a point takes on disk.

use std::time::Instant;

use sqlx::PgPool;

use super::{lines, points};
use crate::{
    load, report, size,
    system::{Peer, Role, Servers, Signalbox},
};

const CONNECTIONS: usize = 8;
const EVENTS: usize = 500;

pub async fn run() -> anyhow::Result<()> {
    let count = size::of("BENCH_POINTS", 500_000)? as usize;
    let rounds = size::of("BENCH_ROUNDS", 3)?;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let plain = signalbox_database::connect_as(
        &servers.create_database("plain").await?,
        4,
        signalbox_database::Class::Maintenance,
    )
    .await?;
    points::make_table(&plain).await?;
    let influx = Peer::influx(servers.folder()).await?;
    let events = points::add_events(&api, EVENTS).await?;
    let (ours, theirs) = (points::requests(&api, &events, count), points::copy_rows(&events, count));
    let mut rates: [Vec<f64>; 3] = Default::default();
    for round in 0..=rounds {
        let our_load = load::send_all(api.address, CONNECTIONS, &ours, 201)?;
        let start = Instant::now();
        sqlx::query("TRUNCATE points").execute(&plain).await?;
        points::copy(&plain, &theirs).await?;
        let copied = count as f64 / start.elapsed().as_secs_f64();
        let requests = lines::to_influx(&points::lines(&events, count));
        let written =
            load::send_all(influx.address, CONNECTIONS, &requests, 204)?.rate * points::BATCH as f64;
        // The first round warms up.
        if round > 0 {
            rates[0].push(our_load.rate * points::BATCH as f64);
            rates[1].push(copied);
            rates[2].push(written);
        }
    }
    let pool = servers.database().await?;
    points::wait_until_folded(&pool).await?;
    print(&rates);
    print_bytes(&pool, &plain, count).await
}

fn print(rates: &[Vec<f64>; 3]) {
    report::title("monitoring: batches of 1,000 over 500 events at 8 connections");
    let [ours, copy, influx] = rates;
    report::figure("signalbox", report::median(ours.iter().copied()), "points/s");
    report::figure("COPY, one connection", report::median(copy.iter().copied()), "points/s");
    let ratio = |theirs: &[f64]| report::median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs));
    report::ratio("to COPY", ratio(copy), 1.5);
    report::figure("InfluxDB", report::median(influx.iter().copied()), "points/s");
    report::ratio("to InfluxDB", ratio(influx), 0.7);
}

async fn print_bytes(pool: &PgPool, plain: &PgPool, rows: usize) -> anyhow::Result<()> {
    let size = "SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits
                 WHERE inhparent IN ('datapoint_log'::regclass, 'datapoint_batches'::regclass, 'series.chunks'::regclass)";
    let bytes: i64 = sqlx::query_scalar(size).fetch_one(pool).await?;
    let points: i64 =
        sqlx::query_scalar("SELECT points FROM log_head WHERE log = 'datapoints'").fetch_one(pool).await?;
    let table: i64 = sqlx::query_scalar("SELECT pg_total_relation_size('points')").fetch_one(plain).await?;
    let (ours, theirs) = (bytes as f64 / points as f64, table as f64 / rows as f64);
    report::pair("bytes on disk per point, and in rows", ours, theirs, "bytes");
    report::ratio("rows to ours", theirs / ours, 4.0);
    Ok(())
}
