//! Whether the service says how it is.

use serde_json::json;

use crate::harness::{World, eventually, seconds};

#[tokio::test]
async fn health_and_info_need_no_login() {
    let world = World::start().await;
    let client = world.anonymous();
    for path in ["/api/health", "/health"] {
        let health = client.get(path).await.expect(200);
        assert_eq!((&health["status"], &health["components"]["database"]), (&json!("ok"), &json!("ok")));
        assert_eq!(
            (&health["components"]["api"], &health["components"]["broker"]),
            (&json!("ok"), &json!("ok"))
        );
    }
    let info = client.get("/api/info").await.expect(200);
    assert_eq!((&info["name"], &info["docs"]), (&json!("Signalbox"), &json!("/api/docs")));
    assert_eq!(info["version"], env!("CARGO_PKG_VERSION"));
    client.get("/livez").await.expect(200);
    client.get("/readyz").await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn without_its_bus_the_service_is_degraded_and_reads_go_on() {
    let world = World::start().await;
    let client = world.anonymous();
    let agent = world.agent("before").await;
    world.servers.nats.kill().await;
    let degraded = async || {
        let health = client.get("/api/health").await.expect(200);
        health["status"] == "degraded" && health["components"]["broker"] == "error"
    };
    eventually(seconds(30), degraded).await;
    assert_eq!(client.get("/health").await.expect(200)["components"]["database"], "ok");
    assert_eq!(client.get("/readyz").await.status, 503);
    client.get("/livez").await.expect(200);
    world.admin.get(&format!("/api/agents/{}", agent.id)).await.expect(200);
    world.servers.nats.restart().await;
    eventually(seconds(10), async || client.get("/readyz").await.status == 200).await;
    eventually(seconds(10), async || {
        world.admin.post("/api/agents", json!({"name": "after"})).await.status == 201
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn a_write_without_its_bus_is_refused_or_done_but_never_half_done() {
    let world = World::start().await;
    world.servers.nats.kill().await;
    eventually(seconds(30), async || world.anonymous().get("/readyz").await.status == 503).await;
    let before = world.head().await;
    let begun = tokio::time::Instant::now();
    let answer = world.admin.post("/api/agents", json!({"name": "a"})).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some() && begun.elapsed() < seconds(20));
    assert_eq!(world.head().await, before);
    world.servers.nats.restart().await;
    eventually(seconds(10), async || world.anonymous().get("/readyz").await.status == 200).await;
    let made = world.admin.get("/api/agents").await.expect(200);
    assert_eq!(made, json!([]));
    world.finish().await;
}
