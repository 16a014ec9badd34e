//! 1,000 subscribers while 5,000 points a second come in: does each see the newest value of every event in the end, and how
//! long does a value take from its accepted request to a socket?

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use futures::StreamExt;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    task::JoinSet,
    time::{interval, timeout},
};
use tokio_tungstenite::connect_async;

use super::points;
use crate::{
    report, size,
    system::{Role, Servers, Signalbox},
};

const EVENTS: usize = 500;
/// Every event gets a value so often: 5,000 points a second.
const TICK: Duration = Duration::from_millis(100);
/// How long subscribers have to see the last values.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Each of so many subscribers measures.
const MEASURING: usize = 20;

#[derive(Deserialize)]
struct Shown<'a> {
    #[serde(borrow, default)]
    datapoints: Vec<Item<'a>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    value: f64,
    event_public_id: &'a str,
}

/// When the values of each tick were accepted.
type Accepted = Arc<Mutex<Vec<Option<Instant>>>>;

pub async fn run() -> anyhow::Result<()> {
    let subscribers = size::of("BENCH_SUBSCRIBERS", 1000)? as usize;
    let ticks = size::of("BENCH_SECONDS", 10)? as usize * 10;
    let servers = Servers::start().await?;
    let (ours, api) = Signalbox::new(&servers, Role::All)?.start_and_log_in().await?;
    let events = Arc::new(points::add_events(&api, EVENTS).await?);
    let accepted: Accepted = Arc::new(Mutex::new(vec![None; ticks]));
    let mut sockets = JoinSet::new();
    let url = format!("ws://{}/ws/datapoints/stream?token={}", api.address, api.token());
    for index in 0..subscribers {
        let (socket, _) = connect_async(url.as_str()).await?;
        let times = (index % (subscribers / MEASURING).max(1) == 0).then(|| accepted.clone());
        sockets.spawn(watch(socket, events.clone(), ticks, times));
    }
    let before = ours.resident_mib()?;
    ours.forget_peak()?;
    let mut clock = interval(TICK);
    for tick in 0..ticks {
        clock.tick().await;
        let items: Vec<_> =
            events.iter().map(|event| json!({"value": tick, "event_public_id": event})).collect();
        api.post("/api/v1/datapoints/batch", &json!({"datapoints": items})).await?;
        accepted.lock().unwrap_or_else(PoisonError::into_inner)[tick] = Some(Instant::now());
    }
    let mut milliseconds = Vec::new();
    let mut complete = 0;
    while let Some(seen) = sockets.join_next().await {
        if let Ok(latencies) = seen? {
            complete += 1;
            milliseconds.extend(latencies);
        }
    }
    report::title(&format!("monitoring: {subscribers} subscribers, 5,000 points/s"));
    report::ratio("share that saw the newest of all", complete as f64 / subscribers as f64, 1.0);
    report::figure("p99 from accepted to socket", report::quantile(milliseconds, 0.99), "ms");
    report::figure("more resident memory", ours.peak_mib()? - before, "MiB");
    Ok(())
}

/// Reads until the last value of every event was shown; returns how long values took.
async fn watch<S>(
    mut socket: tokio_tungstenite::WebSocketStream<S>,
    events: Arc<Vec<String>>,
    ticks: usize,
    accepted: Option<Accepted>,
) -> anyhow::Result<Vec<f64>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let last = (ticks - 1) as f64;
    let mut missing: std::collections::HashSet<&str> = events.iter().map(String::as_str).collect();
    let mut milliseconds = Vec::new();
    while !missing.is_empty() {
        let message = timeout(TIMEOUT, socket.next()).await?.context("the socket was closed")??;
        let Ok(text) = message.to_text() else { continue };
        let Ok(shown) = serde_json::from_str::<Shown<'_>>(text) else { continue };
        for item in &shown.datapoints {
            ensure!(item.value <= last, "a value that was never sent");
            if item.value == last {
                missing.remove(item.event_public_id);
            }
        }
        if let (Some(accepted), Some(item)) = (&accepted, shown.datapoints.last()) {
            let times = accepted.lock().unwrap_or_else(PoisonError::into_inner);
            // Some are shown before their request is answered.
            let took = times[item.value as usize].map_or(Duration::ZERO, |accepted| accepted.elapsed());
            milliseconds.push(took.as_secs_f64() * 1000.0);
        }
    }
    Ok(milliseconds)
}
