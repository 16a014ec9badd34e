//! Networks that go silent without closing their connections, between the service and what it stands on.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use serde_json::json;
use signalbox_test_support::{SilentLink, TestServers};

use crate::harness::{Separate, eventually, seconds};

/// The address in `url`, between its user or scheme and its path.
fn address_in(url: &str) -> SocketAddr {
    let rest = url.rsplit_once('@').or_else(|| url.rsplit_once("//")).unwrap().1;
    rest.split(['/', ',', '?']).next().unwrap().parse().unwrap()
}

/// Lets `link` go silent while reads and writes are in progress, and waits until both succeed again.
async fn outlives_silence(service: &Separate, link: &SilentLink, name: &str) {
    let admin = &service.admin;
    admin.post("/api/agents", json!({"name": format!("{name} before")})).await.expect(201);
    link.silence();
    link.restore();
    let mut count = 0;
    eventually(seconds(15), async || {
        count += 1;
        admin.post("/api/agents", json!({"name": format!("{name} {count}")})).await.status == 201
    })
    .await;
    admin.get("/api/agents").await.expect(200);
    eventually(seconds(15), async || admin.anonymous().get("/readyz").await.status == 200).await;
}

#[tokio::test]
async fn silent_connections_to_the_database_are_replaced() {
    let servers = TestServers::start().await;
    let target = address_in(&servers.database_url);
    let link = SilentLink::to(target).await;
    let url = link.instead_of(&servers.database_url, target);
    let service = Separate::start(&[("DATABASE_URL", &url), ("NATS_URL", &servers.nats_url)]).await;
    outlives_silence(&service, &link, "database").await;
}

#[tokio::test]
async fn silent_connections_to_the_bus_are_replaced() {
    let servers = TestServers::start().await;
    let target = address_in(&servers.nats_url);
    let link = SilentLink::to(target).await;
    let url = link.instead_of(&servers.nats_url, target);
    let settings = [
        ("DATABASE_URL", servers.database_url.as_str()),
        ("NATS_URL", url.as_str()),
        ("SIGNALBOX_NATS__REPLICAS", "1"),
    ];
    let service = Separate::start(&settings).await;
    outlives_silence(&service, &link, "bus").await;
    // Soon nats-server delivers no command to a subscription of the silent connections, where it would time out after 3 s.
    let mut count = 0;
    eventually(seconds(15), async || {
        for _ in 0..20 {
            count += 1;
            let (body, start) = (json!({"name": format!("quick {count}")}), Instant::now());
            let answer = service.admin.post("/api/agents", body).await;
            if answer.status != 201 || start.elapsed() >= Duration::from_secs(3) {
                return false;
            }
        }
        true
    })
    .await;
}
