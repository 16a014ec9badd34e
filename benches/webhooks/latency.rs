use std::{collections::HashMap, time::Duration};

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{
    public_id,
    sink::{Behaviour, Sink, now},
    subscribe,
};
use crate::{
    report, size,
    system::{Role, Servers, Signalbox},
};

const TIMEOUT: Duration = Duration::from_secs(30);

/// From the answer to a datapoint on which a rule fires to the call of the receiver.
pub async fn run() -> anyhow::Result<()> {
    let count = size::of("BENCH_SECONDS", 3)? as usize * 100;
    let servers = Servers::start().await?;
    let (_ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let sink = Sink::start(Behaviour::Accept).await?;
    subscribe(&api, &sink.url("hook"), &["sensor.threshold_exceeded"]).await?;
    let event = public_id(&api.post("/api/v1/events", &json!({"name": "boiler", "type": "sensor"})).await?)?;
    let rule = json!({"name": "hot", "event_public_id": event, "operator": "gt", "threshold": 0, "cooldown_seconds": 0,
        "action_type": "webhook", "webhook_event_type": "sensor.threshold_exceeded"});
    api.post("/api/v1/rules", &rule).await?;
    let mut accepted = HashMap::new();
    for number in 1..=count {
        let datapoint = json!({"value": number as f64, "event_public_id": event});
        api.post("/api/v1/datapoints", &datapoint).await?;
        accepted.insert(number as u64, now());
        timeout(TIMEOUT, sink.until(number)).await.context("the receiver was not called")??;
    }
    let latencies: Vec<_> = sink
        .take()
        .iter()
        .filter_map(|(time, body)| {
            let body: Value = serde_json::from_slice(body).ok()?;
            Some((time - accepted.get(&(body["value"].as_f64()? as u64))?) * 1000.0)
        })
        .collect();
    report::title("webhooks: from an accepted datapoint to the call of the receiver");
    for (name, at) in [("p50", 0.5), ("p95", 0.95), ("p99", 0.99)] {
        report::figure(name, report::quantile(latencies.iter().copied(), at), "ms");
    }
    Ok(())
}
