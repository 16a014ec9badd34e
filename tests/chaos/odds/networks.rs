//! Silence of networks that not every installation has: to a bucket, to a replica, to a receiver of webhooks.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use signalbox_config::{Secret, Storage};
use signalbox_test_support::{S3Server, SilentLink};
use tokio::time::Instant;

use super::{END, ROLES, System, address_in, silence_each};
use crate::{
    sink::{Behaviour, Sink},
    system::{Role, Servers, wait_for, wait_until},
};

/// Values that cross a threshold, half of them before the silence.
const CROSSINGS: usize = 20;
/// So long a receiver takes to answer, so that deliveries are in progress at the moment of the silence.
const ANSWER: Duration = Duration::from_millis(500);

/// Lets the network between each process and the bucket go silent once.
pub async fn silent_bucket() -> anyhow::Result<()> {
    let server = S3Server::start().await;
    let mut storage = Storage {
        folder: "unused".into(),
        url: String::new(),
        endpoint: String::new(),
        region: String::new(),
        path_style: true,
        access_key_id: String::new(),
        secret_access_key: Secret::new(String::new()),
        segment_mb: 8,
    };
    server.configure(&mut storage, "chaos");
    let target = address_in(&storage.endpoint)?;
    let (mut links, mut more) = (Vec::new(), Vec::new());
    for role in ROLES {
        let link = SilentLink::to(target).await;
        more.extend([
            (role, "SIGNALBOX_STORAGE__URL", storage.url.clone()),
            (role, "SIGNALBOX_STORAGE__ENDPOINT", link.instead_of(&storage.endpoint, target)),
            (role, "SIGNALBOX_STORAGE__REGION", storage.region.clone()),
            (role, "SIGNALBOX_STORAGE__PATH_STYLE", storage.path_style.to_string()),
            (role, "SIGNALBOX_STORAGE__ACCESS_KEY_ID", storage.access_key_id.clone()),
            (role, "SIGNALBOX_STORAGE__SECRET_ACCESS_KEY", storage.secret_access_key.expose().to_owned()),
        ]);
        links.push((format!("{role:?} and the bucket"), link));
    }
    let mut system = System::start_on(Servers::start().await?, false, &more).await?;
    system.links = links;
    silence_each(&mut system).await
}

/// Lets the network between the gateway and PostgreSQL's replica go silent; each write shows in the next read.
pub async fn silent_replica() -> anyhow::Result<()> {
    let servers = Servers::start_scaled().await?;
    let url = servers.replica_url.clone().context("a replica")?;
    let target = address_in(&url)?;
    let link = SilentLink::to(target).await;
    let more = [(Role::Gateway, "SIGNALBOX_DATABASE__REPLICA_URL", link.instead_of(&url, target))];
    let mut system = System::start_on(servers, false, &more).await?;
    system.ask().await?;
    system.completed().await?;
    let start = Instant::now();
    link.silence();
    link.restore();
    let mut answered = None;
    for _ in 0..5 {
        let before = system.moves.len();
        system.ask().await?;
        answered.get_or_insert_with(|| start.elapsed());
        for (number, ..) in &system.moves[before..] {
            let shown = system.api.get(&format!("/api/transfers/{number}")).await;
            let shown = shown.with_context(|| format!("transfer {number} was taken and does not show"))?;
            ensure!(shown["id"] == *number, "transfer {number} is shown as {shown}");
        }
    }
    system.completed().await?;
    println!(
        "silence between the gateway and the replica: writes were answered after {:.1?}, all work was done after {:.1?}",
        answered.unwrap_or_default(),
        start.elapsed()
    );
    system.check().await
}

/// Lets the network between the workers and a receiver of webhooks go silent; each event reaches it, with one id.
pub async fn silent_receiver() -> anyhow::Result<()> {
    let system = System::start(false, None).await?;
    let sink = Sink::start(Behaviour::Delay(ANSWER)).await?;
    let link = SilentLink::to(sink.address).await;
    let kind = "sensor.threshold_exceeded";
    let url = link.instead_of(&sink.url("hook"), sink.address);
    let webhook = json!({"url": url, "secret": "a shared secret", "events": [kind]});
    system.api.post("/api/v1/webhooks", &webhook).await?;
    let channel = system.api.post("/api/v1/events", &json!({"name": "boiler", "type": "sensor"})).await?;
    let rule = json!({"name": "too hot", "event_public_id": channel["public_id"], "operator": "gt",
        "threshold": 10, "cooldown_seconds": 0, "action_type": "webhook", "webhook_event_type": kind});
    system.api.post("/api/v1/rules", &rule).await?;
    cross(&system, &channel, 0..CROSSINGS / 2).await?;
    sink.until(1).await?;
    let start = Instant::now();
    link.silence();
    link.restore();
    cross(&system, &channel, CROSSINGS / 2..CROSSINGS).await?;
    let answered = start.elapsed();
    wait_until("the end of all deliveries", END, || async {
        let sql = "SELECT count(*) FROM read.deliveries WHERE status = 'delivered'";
        let delivered: i64 = sqlx::query_scalar(sql).fetch_one(&system.pool).await?;
        ensure!(delivered as usize == CROSSINGS, "{delivered} of {CROSSINGS} events were delivered");
        Ok(true)
    })
    .await
    .with_context(|| system.said())?;
    println!(
        "silence between Workers and a receiver: writes were answered after {answered:.1?}, all work was done after {:.1?}",
        start.elapsed()
    );
    let mut ids = BTreeMap::<String, BTreeSet<String>>::new();
    for (_, body) in sink.take() {
        let body: Value = serde_json::from_slice(&body)?;
        ids.entry(body["value"].to_string()).or_default().insert(body["id"].to_string());
    }
    let once = ids.values().all(|ids| ids.len() == 1);
    ensure!(ids.len() == CROSSINGS && once, "the receiver was notified of {ids:?}");
    system.check().await
}

/// Sends a value below the threshold and one above it, again and again.
async fn cross(system: &System, channel: &Value, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
    for number in numbers {
        let points = [1.0, 11.0 + number as f64]
            .map(|value| json!({"value": value, "event_public_id": channel["public_id"]}));
        let (batch, key) = (json!({ "datapoints": points }), format!("crossing-{number}"));
        wait_for("a batch being taken", END, || async {
            Ok(Some(system.api.post_once("/api/v1/datapoints/batch", &key, &batch).await?))
        })
        .await?;
    }
    Ok(())
}
