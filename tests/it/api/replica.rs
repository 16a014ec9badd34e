//! Gateways that read a streaming replica of the database.

use std::time::Instant;

use reqwest::Method;
use serde_json::json;
use signalbox_config::Secret;
use signalbox_test_support::TestReplicatedPostgres;
use sqlx::{Connection, PgConnection};

use crate::harness::{Client, World, eventually, eventually_some, seconds};

async fn world(database: &TestReplicatedPostgres) -> World {
    database.make_database("signalbox").await;
    World::with(|config| {
        config.database.url = Secret::new(database.url("signalbox"));
        config.database.replica_url = Secret::new(database.replica_url("signalbox"));
    })
    .await
}

/// Makes an agent at one gateway, which answers without reservation, and reads it at both. A busy machine may take longer to
/// show it than an answer waits, but not again and again.
async fn write_and_read(name: &str, gateways: [&Client; 2]) {
    let id = eventually_some(seconds(10), async || {
        let made = gateways[0].post("/api/agents", json!({ "name": name })).await;
        made.header("consistency").is_none().then(|| made.id())
    })
    .await;
    for gateway in [gateways[1], gateways[0]] {
        assert_eq!(gateway.get(&format!("/api/agents/{id}")).await.expect(200)["name"], name);
        let listed = gateway.get("/api/agents?limit=500").await.expect(200);
        assert!(listed.as_array().unwrap().iter().any(|agent| agent["id"] == id), "{name}");
    }
}

/// Whether the replica answers what `client` asks. Gateways ask it all the time how far it has come; that does not count.
async fn replica_is_read(database: &TestReplicatedPostgres, client: &Client) -> bool {
    let Ok(mut connection) = PgConnection::connect(&database.replica_url("signalbox")).await else {
        return false;
    };
    let asked = "SELECT coalesce(max(query_start), 'epoch')::timestamptz::text FROM pg_stat_activity
                  WHERE application_name = 'signalbox' AND query NOT LIKE '%pg_last_wal_replay_lsn%'";
    let before: String = sqlx::query_scalar(asked).fetch_one(&mut connection).await.unwrap();
    client.get("/api/agents").await.expect(200);
    let after: String = sqlx::query_scalar(asked).fetch_one(&mut connection).await.unwrap();
    before != after
}

#[tokio::test]
async fn what_was_written_at_one_gateway_is_read_at_the_other_from_the_replica() {
    let database = TestReplicatedPostgres::start().await;
    let mut world = world(&database).await;
    let other = world.another_gateway().await;
    let other = world.admin.at(&other);
    for client in [&world.admin, &other] {
        let client = client.with_token(world.admin.token.as_deref().unwrap());
        eventually(seconds(20), async || replica_is_read(&database, &client).await).await;
    }
    for number in 0..40 {
        let gateways = if number % 2 == 0 { [&world.admin, &other] } else { [&other, &world.admin] };
        write_and_read(&format!("agent {number}"), gateways).await;
    }
    // Deletions too, and what is beside the read models.
    let channel = json!({"name": "pressure", "type": "sensor"});
    let channel = world.admin.post("/api/v1/events", channel).await.expect(201);
    let id = channel["public_id"].as_str().unwrap();
    for number in 0..20 {
        let point = json!({"value": number, "event_public_id": id});
        world.admin.post("/api/v1/datapoints", point).await.expect(201);
        let latest = other.get("/api/v1/datapoints/latest").await.expect(200);
        assert_eq!(latest[0]["value"], number as f64);
    }
    world.admin.delete(&format!("/api/v1/events/{id}")).await.expect(200);
    other.get(&format!("/api/v1/events/{id}")).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn a_replica_that_falls_behind_is_left_and_read_again_when_it_has_caught_up() {
    let database = TestReplicatedPostgres::start().await;
    let mut world = world(&database).await;
    let other = world.another_gateway().await;
    let other = world.admin.at(&other);
    eventually(seconds(20), async || replica_is_read(&database, &world.admin).await).await;
    database.pause_replay().await;
    for number in 0..10 {
        write_and_read(&format!("agent {number}"), [&world.admin, &other]).await;
    }
    assert!(!replica_is_read(&database, &world.admin).await, "the replica is behind");
    database.resume_replay().await;
    eventually(seconds(20), async || {
        // Also while it restarts.
        let now = world.clock.now().timestamp_micros();
        write_and_read(&format!("agent {now}"), [&other, &world.admin]).await;
        replica_is_read(&database, &world.admin).await
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn a_replica_that_is_killed_costs_no_request() {
    let database = TestReplicatedPostgres::start().await;
    let mut world = world(&database).await;
    let other = world.another_gateway().await;
    let other = world.admin.at(&other);
    for round in 0..3 {
        eventually(seconds(20), async || replica_is_read(&database, &world.admin).await).await;
        let reading = async {
            let begun = Instant::now();
            while begun.elapsed() < seconds(4) {
                world.admin.send(world.admin.request(Method::GET, "/api/agents")).await.expect(200);
            }
        };
        let killing = async {
            database.kill_replica().await;
            for number in 0..5 {
                write_and_read(&format!("agent {round}.{number}"), [&other, &world.admin]).await;
            }
            database.restart_replica().await;
        };
        tokio::join!(reading, killing);
    }
    world.finish().await;
}
