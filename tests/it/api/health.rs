//! Whether the service says how it is.

use chrono::TimeDelta;
use serde_json::{Value, json};
use signalbox_clock::Clock;
use sqlx::{Connection, Executor, PgConnection};

use crate::harness::{World, eventually, seconds};

#[tokio::test]
async fn health_and_info_need_no_login() {
    let world = World::start().await;
    let client = world.anonymous();
    for path in ["/api/health", "/health", "/api/v1/health"] {
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
async fn health_says_since_when_the_service_is_up_and_when_the_last_datapoint_came() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    for path in ["/health", "/api/v1/health"] {
        let before = world.anonymous().get(path).await.expect(200);
        assert_eq!((&before["database"], &before["last_datapoint"]), (&json!("ok"), &Value::Null));
        clock.advance(TimeDelta::milliseconds(90_250));
        let after = world.anonymous().get(path).await.expect(200);
        let up = |health: &Value| health["uptime_seconds"].as_f64().unwrap();
        assert!((up(&after) - up(&before) - 90.25).abs() <= 0.1, "{before} {after}");
    }
    let event = json!({"name": "boiler", "type": "sensor"});
    let event = world.admin.post("/api/v1/events", event).await.expect(201)["public_id"].clone();
    for value in [1, 2] {
        let point = json!({"value": value, "event_public_id": event});
        let point = world.admin.post("/api/v1/datapoints", point).await.expect(201);
        // A gateway remembers the newest one for less than a second.
        clock.advance(TimeDelta::seconds(1));
        let health = world.anonymous().get("/health").await.expect(200);
        assert_eq!(health["last_datapoint"], point["timestamp"]);
    }
    let service_1 = world.anonymous().get("/api/health").await.expect(200);
    assert_eq!(service_1.as_object().unwrap().len(), 3, "{service_1}");
    world.finish().await;
}

/// Refuses new connections to the database of `world`, and ends the existing ones.
async fn close_database(world: &World) {
    let (server, name) = world.servers.database_url.rsplit_once('/').unwrap();
    let mut outside = PgConnection::connect(&format!("{server}/postgres")).await.unwrap();
    outside.execute(format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false").as_str()).await.unwrap();
    let throw_out = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1";
    sqlx::query(throw_out).bind(name).execute(&mut outside).await.unwrap();
}

#[tokio::test]
async fn without_its_database_health_says_so_and_does_not_wait() {
    let world = World::with_own_bus(|_| {}).await;
    let client = world.anonymous();
    client.get("/health").await.expect(200);
    close_database(&world).await;
    for path in ["/health", "/api/v1/health", "/api/health"] {
        let begun = tokio::time::Instant::now();
        let health = client.get(path).await.expect(503);
        assert!(begun.elapsed() < seconds(10), "{path} took {:?}", begun.elapsed());
        let components = &health["components"];
        assert_eq!((&health["status"], &components["database"]), (&json!("degraded"), &json!("error")));
        assert_eq!(components["broker"], "ok");
        assert!(health["database"] == "error" || path == "/api/health");
    }
    assert_eq!(client.get("/readyz").await.status, 503);
    client.get("/livez").await.expect(200);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn without_its_bus_the_service_is_degraded_and_reads_go_on() {
    let world = World::with_own_bus(|_| {}).await;
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
    let world = World::with_own_bus(|_| {}).await;
    world.servers.nats.kill().await;
    eventually(seconds(30), async || world.anonymous().get("/readyz").await.status == 503).await;
    let before = world.count_all_events().await;
    let begun = tokio::time::Instant::now();
    let answer = world.admin.post("/api/agents", json!({"name": "a"})).await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.header("retry-after").is_some() && begun.elapsed() < seconds(20));
    assert_eq!(world.count_all_events().await, before);
    world.servers.nats.restart().await;
    eventually(seconds(10), async || world.anonymous().get("/readyz").await.status == 200).await;
    let made = world.admin.get("/api/agents").await.expect(200);
    assert_eq!(made, json!([]));
    world.finish().await;
}
