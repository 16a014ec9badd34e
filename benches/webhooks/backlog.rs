//! A backlog of past events that is delivered to one receiver.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::Method;
use serde_json::json;
use tokio::time::timeout;

use super::{
    EVENTS, experiment, public_id,
    sink::{Arrival, Sink, now},
    subscribe,
};
use crate::system::{Api, wait_until};

/// Enough for all ten slots of an installation, of which each subscription may hold three.
const SUBSCRIPTIONS: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(300);

/// How it was delivered.
pub struct Delivered {
    /// Deliveries in a second, from the first arrival to the last.
    pub rate: f64,
    /// The body of one of them.
    pub body: Vec<u8>,
}

/// Makes the past of about that many deliveries; returns how many there are to be.
pub async fn record(api: &Api, deliveries: usize) -> anyhow::Result<usize> {
    let experiments = deliveries / (SUBSCRIPTIONS * EVENTS.len());
    record_experiments(api, experiments).await?;
    Ok(experiments * SUBSCRIPTIONS * EVENTS.len())
}

/// Starts and stops experiments.
pub async fn record_experiments(api: &Api, count: usize) -> anyhow::Result<()> {
    for number in 0..count {
        experiment(api, number).await?;
    }
    Ok(())
}

/// Lets new subscriptions ask for a replay, and waits until `sink` has received all of it; `round` makes their urls
/// unique.
pub async fn deliver(api: &Api, sink: &Sink, deliveries: usize, round: &str) -> anyhow::Result<Delivered> {
    let mut made = Vec::new();
    for number in 0..SUBSCRIPTIONS {
        made.push(subscribe(api, &sink.url(&format!("{round}/{number}")), &EVENTS).await?);
    }
    for webhook in &made {
        let from = json!({"from": "2020-01-01T00:00:00Z"});
        api.post(&format!("/api/v1/webhooks/{webhook}/replay"), &from).await?;
    }
    let arrivals = arrivals(sink, deliveries).await?;
    let times = || arrivals.iter().map(|(time, _)| *time);
    let took = times().fold(f64::MIN, f64::max) - times().fold(f64::MAX, f64::min);
    for webhook in made {
        api.call(Method::DELETE, &format!("/api/v1/webhooks/{webhook}"), None).await?;
    }
    let (_, body) = arrivals.into_iter().next().context("nothing came")?;
    Ok(Delivered { rate: deliveries as f64 / took, body })
}

/// Queues `deliveries` for `subscriptions` new subscriptions while these are disabled, enables them, and waits until `sink`
/// has received all. Returns deliveries in a second from the enabling to the last arrival: queueing takes no part in it.
pub async fn deliver_queued(
    api: &Api,
    sink: &Sink,
    (subscriptions, deliveries): (usize, usize),
    round: &str,
) -> anyhow::Result<f64> {
    let mut made = Vec::new();
    for number in 0..subscriptions {
        let url = sink.url(&format!("{round}/{number}"));
        let webhook = json!({"url": url, "secret": "a shared secret", "events": EVENTS, "enabled": false});
        made.push(public_id(&api.post("/api/v1/webhooks", &webhook).await?)?);
    }
    for webhook in &made {
        let from = json!({"from": "2020-01-01T00:00:00Z"});
        api.post(&format!("/api/v1/webhooks/{webhook}/replay"), &from).await?;
    }
    for webhook in &made {
        wait_until("the end of the replays", TIMEOUT, || async {
            let path = format!("/api/v1/webhooks/{webhook}");
            Ok(api.call(Method::GET, &path, None).await?["replaying"] == false)
        })
        .await?;
    }
    let begun = now();
    for webhook in &made {
        let path = format!("/api/v1/webhooks/{webhook}");
        api.call(Method::PUT, &path, Some(&json!({"enabled": true}))).await?;
    }
    let arrivals = arrivals(sink, deliveries).await?;
    let last = arrivals.iter().map(|(time, _)| *time).fold(begun, f64::max);
    for webhook in made {
        api.call(Method::DELETE, &format!("/api/v1/webhooks/{webhook}"), None).await?;
    }
    Ok(deliveries as f64 / (last - begun))
}

async fn arrivals(sink: &Sink, count: usize) -> anyhow::Result<Vec<Arrival>> {
    let came = timeout(TIMEOUT, sink.until(count)).await;
    came.context("the deliveries did not come in time")??;
    Ok(sink.take())
}
