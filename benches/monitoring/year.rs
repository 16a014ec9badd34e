//! A year of one value a second, 31.5 million points: its aggregates beside those of an hour with as many points in the answer.

use std::time::Instant;

use chrono::{DateTime, TimeDelta, Utc};
use rand::{Rng, SeedableRng, rngs::StdRng};
use reqwest::Method;
use serde_json::{Value, json};

use super::points;
use crate::{
    load, report, size,
    system::{Api, Role, Servers, Signalbox},
};

const CONNECTIONS: usize = 8;
const YEAR: usize = 365 * 24 * 3600;
/// Points that are made and sent together: all bodies at once would not fit into memory.
const PART: usize = 1_000_000;
const HOUR: i64 = 3600;
/// Points of an answer, seconds of a step in an hour, hours of a step in (nearly) a year.
const SIZES: [(i64, i64, i64); 4] = [(360, 10, 24), (720, 5, 12), (1200, 3, 7), (3600, 1, 2)];
/// Requests of each kind.
const REQUESTS: usize = 100;
const SEED: u64 = 123;

/// A channel, and the range in which it has points.
struct Recorded<'a> {
    api: &'a Api,
    event: &'a str,
    begin: DateTime<Utc>,
    hours: i64,
}

pub async fn run() -> anyhow::Result<()> {
    let count = size::of("BENCH_YEAR", YEAR as u64)? as usize;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let pool = servers.database().await?;
    let events = points::add_events(&api, 1).await?;
    let end = servers.now().await?.timestamp() / HOUR * HOUR;
    let begin = DateTime::from_timestamp(end - count as i64, 0).unwrap_or_default();
    let started = Instant::now();
    for first in (0..count).step_by(PART) {
        let upto = (first + PART).min(count);
        let requests = points::requests_of_one(&api, &events[0], first..upto, begin);
        load::send_all(api.address, CONNECTIONS, &requests, 201)?;
    }
    points::wait_until_folded(&pool).await?;
    points::wait_until_packed(&pool).await?;
    let took = started.elapsed().as_secs_f64();
    report::title(&format!(
        "monitoring: {count} points of one channel, one a second, p95; (nearly) all of it, an hour"
    ));
    report::figure("recorded and folded", count as f64 / took, "points/s");
    let size: i64 =
        sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&pool).await?;
    report::figure("bytes of the database per point", size as f64 / count as f64, "bytes");
    let recorded = Recorded { api: &api, event: &events[0], begin, hours: count as i64 / HOUR };
    let mut rng = StdRng::seed_from_u64(SEED);
    for (points, seconds, hours) in SIZES {
        // A smaller log than a year's has fewer hours.
        let points = points.min(recorded.hours / hours);
        for aggregate in ["avg", "minmax"] {
            let (mut all, mut hour) = (Vec::new(), Vec::new());
            // A second has one value, which is both, and an hour has two.
            let halves = if aggregate == "minmax" && seconds == 1 { 2 } else { 1 };
            for request in 0..=REQUESTS {
                let step = hours * halves * HOUR;
                let one = recorded.ask(&mut rng, points / halves, step, aggregate).await?;
                let other = recorded.ask(&mut rng, points, seconds, aggregate).await?;
                if request > 0 {
                    all.push(one);
                    hour.push(other);
                }
            }
            let p95 = |times: &[f64]| report::quantile(times.iter().copied(), 0.95);
            report::pair(
                &format!("{aggregate}, {points} points, {hours} h and {seconds} s"),
                p95(&all),
                p95(&hour),
                "ms",
            );
            report::bounded("ratio", p95(&all) / p95(&hour), "", 1.5);
        }
    }
    Ok(())
}

impl Recorded<'_> {
    /// Milliseconds of a request for so many steps of so many seconds, from a whole hour on.
    async fn ask(&self, rng: &mut StdRng, points: i64, step: i64, aggregate: &str) -> anyhow::Result<f64> {
        let length = points * step;
        let from =
            self.begin + TimeDelta::hours(rng.random_range(0..=self.hours - (length + HOUR - 1) / HOUR));
        let request = json!({"event_public_ids": [self.event], "from": from.to_rfc3339(),
            "to": (from + TimeDelta::seconds(length)).to_rfc3339(), "step_seconds": step, "aggregate": aggregate});
        let start = Instant::now();
        let answer = self.api.answer(Method::POST, "/api/v1/datapoints/series", Some(&request)).await?;
        let took = start.elapsed().as_secs_f64() * 1000.0;
        let found: Value = serde_json::from_slice(&answer)?;
        let shown = found[self.event].as_array().map_or(0, Vec::len) as i64;
        // With minmax up to two points of each step.
        anyhow::ensure!((points..=2 * points).contains(&shown), "{shown} points came instead of {points}");
        Ok(took)
    }
}
