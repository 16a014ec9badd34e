//! `Idempotency-Key`: the same POST twice is one.

use futures::future::join_all;
use reqwest::Method;
use serde_json::{Value, json};

use super::common::places_of;
use crate::harness::{Answer, Client, World, eventually, seconds};

async fn post(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    client.send(client.request(Method::POST, path).header("idempotency-key", key.as_bytes()).json(body)).await
}

#[tokio::test]
async fn a_repeated_request_is_answered_as_the_first_time() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let body = json!({"name": "a", "description": "once"});
    let first = post(&world.admin, "/api/agents", "key-1", &body).await;
    let made = first.expect(201);
    world.admin.put(&format!("/api/agents/{}", made["id"]), json!({"name": "b"})).await.expect(200);
    let before = world.head().await;
    for client in [&world.admin, &there] {
        let again = post(client, "/api/agents", "key-1", &body).await;
        assert_eq!(again.expect(201), made);
        assert_eq!(again.header("location"), first.header("location"));
        assert_eq!(again.header("content-type"), first.header("content-type"));
    }
    post(&world.admin, "/api/agents", "key-1", &json!({"name": "other"})).await.error(422);
    post(&world.admin, "/api/jobs", "key-1", &body).await.error(422);
    assert_eq!(world.head().await, before);
    // Another user has keys of its own.
    let second = world.user("second", "admin").await;
    assert_ne!(post(&second, "/api/agents", "key-1", &body).await.id(), made["id"].as_i64().unwrap());
    for wrong in ["", "a b", &"x".repeat(256), "ü"] {
        post(&world.admin, "/api/agents", wrong, &body).await.error(400);
    }
    world.finish().await;
}

#[tokio::test]
async fn equal_requests_at_once_over_two_gateways_are_one() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let agent = world.agent("a").await;
    let body = json!({"name": "j", "source_agent_id": agent.id, "destination_agent_id": agent.id,
        "source_path": "/a", "destination_path": "/b"});
    let sent = (0..8).map(|index| {
        let client = if index % 2 == 0 { &world.admin } else { &there };
        post(client, "/api/jobs", "same", &body)
    });
    let ids: Vec<_> = join_all(sent).await.iter().map(Answer::id).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(world.count_events("job_created").await, 1);
    let run = format!("/api/jobs/{}/run", ids[0]);
    let nothing = json!({});
    let sent = (0..8).map(|_| post(&world.admin, &run, "run", &nothing));
    let transfers: Vec<_> = join_all(sent).await.iter().map(Answer::id).collect();
    assert!(transfers.iter().all(|id| *id == transfers[0]), "{transfers:?}");
    assert_eq!(world.count_events("transfer_requested").await, 1);
    world.finish_with_mail().await;
}

#[tokio::test]
async fn a_refused_request_may_be_repeated_with_its_key() {
    let world = World::start().await;
    let viewer = world.user("viewer", "viewer").await;
    let agent = world.agent("a").await;
    let body = json!({"name": "j", "source_agent_id": agent.id, "destination_agent_id": agent.id,
        "source_path": "/a", "destination_path": "/b"});
    post(&viewer, "/api/jobs", "key", &body).await.error(403);
    let users = world.admin.get("/api/v1/users").await.expect(200);
    let user = users["data"].as_array().unwrap().iter().find(|user| user["username"] == "viewer").unwrap();
    let path = format!("/api/v1/users/{}", user["public_id"].as_str().unwrap());
    world.admin.put(&path, json!({"role": "operator"})).await.expect(200);
    eventually(seconds(5), async || post(&viewer, "/api/jobs", "key", &body).await.status == 201).await;
    assert_eq!(world.count_events("job_created").await, 1);
    world.finish().await;
}

#[tokio::test]
async fn a_token_is_shown_again_to_its_key_but_stored_nowhere() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    let body = json!({"name": "t", "agent_id": agent.id});
    let first = post(&world.admin, "/api/tokens", "key", &body).await.expect(201);
    let value = first["value"].as_str().unwrap().to_owned();
    assert!(value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()), "{value}");
    assert_eq!(post(&world.admin, "/api/tokens", "key", &body).await.expect(201), first);
    signalbox_gateway::rotate_signing_key(&world.servers.pool, &world.clock).await.unwrap();
    // Also once the gateway has learnt of a newer key.
    let kid: String = sqlx::query_scalar("SELECT kid FROM ops.signing_keys ORDER BY created_at DESC LIMIT 1")
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    eventually(seconds(10), async || {
        let token =
            world.anonymous().log_in(crate::harness::ADMIN, crate::harness::PASSWORD).await.token.unwrap();
        jsonwebtoken::decode_header(token).unwrap().kid.unwrap() == kid
    })
    .await;
    assert_eq!(post(&world.admin, "/api/tokens", "key", &body).await.expect(201), first);
    assert_eq!(world.count_events("agent_token_created").await, 2);
    for secret in [&value, &agent.token] {
        assert_eq!(places_of(&world, secret).await, Vec::<String>::new());
        for list in ["/api/tokens", "/api/agents"] {
            assert!(!world.admin.get(list).await.text().contains(secret.as_str()), "{list}");
        }
    }
    // The search finds what is there.
    assert_eq!(
        places_of(&world, &crate::harness::sha256(value.as_bytes())).await,
        ["events.payload", "read.agent_tokens.secret_sha256"].map(|place| {
            if place.starts_with("read.") { place.to_owned() } else { format!("public.{place}") }
        })
    );
    world.as_agent(&agent).post("/api/agent/ack", json!({"message_ids": []})).await.expect(200);
    world.anonymous().with_token(&value).post("/api/agent/ack", json!({"message_ids": []})).await.expect(200);
    world.finish().await;
}
