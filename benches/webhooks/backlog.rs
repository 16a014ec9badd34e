//! A backlog of past events that is delivered to one receiver.

use std::time::Duration;

use anyhow::Context as _;
use reqwest::Method;
use serde_json::json;
use tokio::time::timeout;

use super::{EVENTS, experiment, sink::Sink, subscribe};
use crate::system::Api;

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
    for number in 0..experiments {
        experiment(api, number).await?;
    }
    Ok(experiments * SUBSCRIPTIONS * EVENTS.len())
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
    let came = timeout(TIMEOUT, sink.until(deliveries)).await;
    came.context("the deliveries did not come in time")??;
    let arrivals = sink.take();
    let times = || arrivals.iter().map(|(time, _)| *time);
    let took = times().fold(f64::MIN, f64::max) - times().fold(f64::MAX, f64::min);
    for webhook in made {
        api.call(Method::DELETE, &format!("/api/v1/webhooks/{webhook}"), None).await?;
    }
    let (_, body) = arrivals.into_iter().next().context("nothing came")?;
    Ok(Delivered { rate: deliveries as f64 / took, body })
}
