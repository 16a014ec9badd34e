//! `/datapoints/latest` of 500 events and `/datapoints/series` of 20 events over 10 days, with few rows and with many.

use std::time::Instant;

use reqwest::Method;
use serde_json::json;

use super::points;
use crate::{
    load, report, size,
    system::{Api, Role, Servers, Signalbox},
};

const EVENTS: usize = 500;
/// In microseconds.
const TEN_DAYS: i64 = 10 * 86_400_000_000;
/// Requests of each kind.
const REQUESTS: usize = 100;

pub async fn run() -> anyhow::Result<()> {
    let few = size::of("BENCH_FEW", 100_000)? as usize;
    let many = size::of("BENCH_MANY", 10_000_000)? as usize;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let pool = servers.database().await?;
    let events = points::add_events(&api, EVENTS).await?;
    let mut measured = Vec::new();
    for rows in [few, many - few] {
        let now: i64 =
            sqlx::query_scalar("SELECT (extract(epoch FROM now()) * 1e6)::bigint").fetch_one(&pool).await?;
        // All bodies at once would not fit into memory.
        let parts = rows.div_ceil(1_000_000);
        let span = TEN_DAYS / parts as i64;
        for part in 0..parts as i64 {
            let from = now - TEN_DAYS + span * part;
            let requests = points::requests_between(&api, &events, rows / parts, from, from + span);
            load::send_all(api.address, 8, &requests, 201)?;
        }
        points::wait_until_folded(&pool).await?;
        measured.push((latest(&api).await?, series(&api, &events).await?));
    }
    report::title(&format!("monitoring: reads with {few} rows and with {many}, p95"));
    let [few, many] = measured.as_slice() else { return Ok(()) };
    report::pair("latest of 500 events", few.0, many.0, "ms");
    report::bounded("ratio", many.0 / few.0, "", 1.3);
    report::pair("series of 20 events, 10 days, 500 points", few.1, many.1, "ms");
    report::bounded("ratio", many.1 / few.1, "", 1.3);
    Ok(())
}

async fn latest(api: &Api) -> anyhow::Result<f64> {
    p95(async || api.answer(Method::GET, "/api/v1/datapoints/latest", None).await.map(|_| ())).await
}

async fn series(api: &Api, events: &[String]) -> anyhow::Result<f64> {
    let request =
        json!({"event_public_ids": events[..points::CHARTED], "minutes": 14_400, "max_points": 500});
    p95(async || api.answer(Method::POST, "/api/v1/datapoints/series", Some(&request)).await.map(|_| ()))
        .await
}

async fn p95(ask: impl AsyncFn() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut milliseconds = Vec::new();
    for _ in 0..REQUESTS {
        let start = Instant::now();
        ask().await?;
        milliseconds.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(report::quantile(milliseconds, 0.95))
}
