//! Reads that cost the database much, by a viewer.

use std::{net::Ipv4Addr, time::Duration};

use chrono::TimeDelta;
use futures::future::join_all;
use signalbox_clock::Clock;
use tokio::time::sleep;

use crate::{scene::Target, tally::Tally};

const READS: usize = 40;
/// `limits.reads_per_user`.
const SHARE: i64 = 8;
/// Queries of the bystander and of the server itself that may run meanwhile.
const OTHERS: i64 = 8;
const EXPORTS: usize = 4;
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 13, 1);
/// After a refusal.
const INTERVAL: Duration = Duration::from_millis(250);
/// Between two pieces of an export.
const SLOW: Duration = Duration::from_millis(200);

/// A sentence unless the viewer was answered, and never had more queries at work than its share, beside the bystander's.
pub fn excess(seen: &Tally, most_queries: i64) -> Vec<String> {
    println!("  at most {most_queries} queries ran at the same time");
    let mut faults = Vec::new();
    if most_queries > SHARE + OTHERS {
        faults.push(format!(
            "expensive reads: {most_queries} queries ran at a time, {SHARE} are one viewer's share"
        ));
    }
    if seen.of("200") == 0 {
        faults.push("expensive reads: none was answered".to_owned());
    }
    faults
}

pub async fn expensive(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    let client = target.client(ADDRESS)?;
    let one = |number: usize| {
        let client = &client;
        async move {
            for round in 0_usize.. {
                let page = 1 + (number * 131 + round * 17) % 2900;
                let days = 1 + (number + round) % 29;
                let from =
                    (Clock::system().now() - TimeDelta::days(days as i64)).format("%Y-%m-%dT%H:%M:%SZ");
                let event = &target.events[(number + round) % target.events.len()];
                let query = match round % 4 {
                    0 => format!("page={page}&page_size=100"),
                    1 => format!("from={from}&page={}&page_size=100", 1 + page / 4),
                    2 => format!("event_public_id={event}&page={}&page_size=100", 1 + page % 60),
                    _ => format!("to={from}&page_size=100"),
                };
                let request = client.get(target.url(&format!("/api/v1/datapoints?{query}")));
                match request.bearer_auth(&target.viewer).send().await {
                    Ok(answer) => {
                        let status = answer.status();
                        let _ = answer.bytes().await;
                        tally.count(status.as_u16());
                        if !status.is_success() {
                            sleep(INTERVAL).await;
                        }
                    }
                    Err(_) => tally.count("closed"),
                }
            }
        }
    };
    join_all((0..READS).map(one)).await;
    Ok(())
}

pub async fn slow_exports(target: &Target, tally: &Tally) -> anyhow::Result<()> {
    let client = target.client(ADDRESS)?;
    let one = |_| {
        let client = &client;
        async move {
            loop {
                let path = format!("/api/v1/experiments/{}/export/csv", target.experiment);
                let request = client.get(target.url(&path)).timeout(Duration::from_secs(600));
                let Ok(mut answer) = request.bearer_auth(&target.viewer).send().await else {
                    tally.count("closed");
                    sleep(INTERVAL).await;
                    continue;
                };
                tally.count(answer.status().as_u16());
                while let Ok(Some(_)) = answer.chunk().await {
                    tally.count("pieces read");
                    sleep(SLOW).await;
                }
                sleep(INTERVAL).await;
            }
        }
    };
    join_all((0..EXPORTS).map(one)).await;
    Ok(())
}
