//! `Idempotency-Key`: the same POST twice is one.

use futures::future::join_all;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Method;
use serde_json::{Value, json};
use signalbox_domain::{
    kernel::AgentId,
    transfer::{AgentRef, AgentToken, AgentTokenCommand, NewAgentToken},
};
use signalbox_gateway::DerivedTokens;
use signalbox_test_support::metadata;
use uuid::Uuid;

use super::common::places_of;
use crate::harness::{ADMIN, Answer, Client, PASSWORD, World, eventually, seconds, sha256, signalbox};

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
    let before = world.count_all_events().await;
    for client in [&world.admin, &there] {
        let again = post(client, "/api/agents", "key-1", &body).await;
        assert_eq!(again.expect(201), made);
        assert_eq!(again.header("location"), first.header("location"));
        assert_eq!((again.header("etag"), again.header("etag").is_some()), (first.header("etag"), true));
        assert_eq!(again.header("content-type"), first.header("content-type"));
    }
    post(&world.admin, "/api/agents", "key-1", &json!({"name": "other"})).await.error(422);
    post(&world.admin, "/api/jobs", "key-1", &body).await.error(422);
    assert_eq!(world.count_all_events().await, before);
    // Another user has keys of its own.
    let second = world.user("second", "admin").await;
    assert_ne!(post(&second, "/api/agents", "key-1", &body).await.id(), made["id"].as_i64().unwrap());
    for wrong in ["", "a b", &"x".repeat(256), "ü"] {
        post(&world.admin, "/api/agents", wrong, &body).await.error(400);
    }
    world.finish().await;
}

/// The kept answer was given to a user who was no longer allowed to make the request.
#[tokio::test]
async fn a_kept_answer_needs_the_role_of_its_request() {
    let world = World::start().await;
    let user = world.user("anna", "admin").await;
    let body = json!({"name": "a"});
    let made = post(&user, "/api/agents", "key-1", &body).await.expect(201);
    assert_eq!(post(&user, "/api/agents", "key-1", &body).await.expect(201), made);
    let me = user.get("/api/v1/auth/me").await.expect(200);
    let account = format!("/api/v1/users/{}", me["public_id"].as_str().unwrap());
    world.admin.put(&account, json!({"role": "viewer"})).await.expect(200);
    let repeated = async || post(&user, "/api/agents", "key-1", &body).await.status;
    eventually(seconds(20), async || repeated().await == 403).await;
    world.admin.put(&account, json!({"role": "admin"})).await.expect(200);
    eventually(seconds(20), async || repeated().await == 201).await;
    assert_eq!(world.count_events("agent_created").await, 1);
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

#[tokio::test]
async fn an_agents_keys_replay_answers_to_that_agent_only() {
    let world = World::start().await;
    let (first, second) = (world.agent("first").await, world.agent("second").await);
    let body = json!({"system_info": {"hostname": "h"}});
    let connect = async |client: &Client| post(client, "/api/agent/connect", "report-1", &body).await;
    assert_eq!(connect(&world.as_agent(&first)).await.expect(200)["agent_id"], first.id);
    connect(&world.anonymous()).await.error(401);
    connect(&world.anonymous().with_token("0123456789abcdef")).await.error(401);
    connect(&world.admin).await.error(401);
    // The report of another agent with the same key, from the same address, is carried out.
    assert_eq!(connect(&world.as_agent(&second)).await.expect(200)["agent_id"], second.id);
    world.until_agent(&second, "online").await;
    let principals =
        "SELECT DISTINCT split_part(principal, ':', 1) FROM ops.idempotent_requests WHERE key = 'report-1'";
    let principals: Vec<String> =
        sqlx::query_scalar(principals).fetch_all(&world.servers.pool).await.unwrap();
    assert!(!principals.iter().any(|kind| kind == "address"), "{principals:?}");
    world.finish().await;
}

#[tokio::test]
async fn the_query_string_is_a_part_of_the_request() {
    let world = World::start().await;
    let body = json!({"name": "a"});
    let made = post(&world.admin, "/api/agents?from=1", "key", &body).await.expect(201);
    post(&world.admin, "/api/agents?from=2", "key", &body).await.error(422);
    post(&world.admin, "/api/agents", "key", &body).await.error(422);
    assert_eq!(post(&world.admin, "/api/agents?from=1", "key", &body).await.expect(201), made);
    world.finish().await;
}

#[tokio::test]
async fn a_kept_answer_shows_no_secret_in_the_database() {
    const SECRET: &str = "k3y-of-the-device";
    let world = World::start().await;
    let config = json!({"api_key": SECRET}).to_string();
    let body = json!({"plugin_id": "system", "instance_name": "One", "config_json": config});
    let made = post(&world.admin, "/api/v1/plugins", "key", &body).await.expect(201);
    assert_eq!(places_of(&world, SECRET).await, Vec::<String>::new());
    assert_eq!(post(&world.admin, "/api/v1/plugins", "key", &body).await.expect(201), made);
    assert_eq!(world.count_events("plugin_instance_created").await, 1);
    world.finish().await;
}

#[tokio::test]
async fn tokens_do_not_follow_from_the_signing_keys() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    world.admin.post("/api/v1/tokens", json!({"name": "t"})).await.expect(201);
    let derived = || signalbox_gateway::derived_tokens(&world.servers.pool, world.clock.now());
    assert_eq!(derived().await.unwrap(), DerivedTokens::default());
    // A token of an earlier version is valid, and counted until it is revoked.
    let (kid, key): (String, Vec<u8>) = sqlx::query_as("SELECT kid, secret FROM ops.signing_keys")
        .fetch_one(&world.servers.pool)
        .await
        .unwrap();
    let id = world.clock.new_id();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(b"agent token\0");
    mac.update(id.as_bytes());
    let value = hex::encode(mac.finalize().into_bytes());
    let key_of_agent = "SELECT id FROM read.agents WHERE number = $1";
    let key_of_agent: Uuid =
        sqlx::query_scalar(key_of_agent).bind(agent.id).fetch_one(&world.servers.pool).await.unwrap();
    let new = NewAgentToken {
        number: 0,
        name: "old".to_owned(),
        agent: AgentRef { id: AgentId(key_of_agent), number: agent.id },
        description: None,
        secret_sha256: sha256(value.as_bytes()).parse().unwrap(),
        expires_at: None,
    };
    let command = AgentTokenCommand::Create(new);
    world.servers.bus.send::<AgentToken>(id, None, &metadata(), &command).await.unwrap();
    let old = world.anonymous().with_token(&value);
    let acknowledge = async || old.post("/api/agent/ack", json!({"message_ids": []})).await.status;
    eventually(seconds(10), async || acknowledge().await == 200).await;
    signalbox_gateway::rotate_signing_key(&world.servers.pool, &world.clock).await.unwrap();
    assert_eq!(derived().await.unwrap(), DerivedTokens { api: 0, agent: 1 });
    assert_eq!(acknowledge().await, 200, "rotation does not end it");
    let listed = signalbox(&world.config, &["keys", "list", "--json"]).await.json_lines();
    assert_eq!(listed[0]["derived_tokens"], json!({"api": 0, "agent": 1}));
    assert!(listed[0]["keys"].as_array().unwrap().iter().any(|key| key["kid"] == kid.as_str()));
    let report = signalbox(&world.config, &["doctor", "--json"]).await.out;
    let report: Value = serde_json::from_str(&report).unwrap();
    let tokens = report.as_array().unwrap().iter().find(|finding| finding["check"] == "tokens").unwrap();
    let found = tokens["found"].as_str().unwrap();
    assert!(tokens["verdict"] == "warning" && found.contains("1 agent tokens"), "{tokens}");
    let tokens = world.admin.get("/api/tokens").await.expect(200);
    let number =
        tokens.as_array().unwrap().iter().find(|token| token["name"] == "old").unwrap()["id"].clone();
    world.admin.delete(&format!("/api/tokens/{number}")).await.expect(204);
    eventually(seconds(10), async || derived().await.unwrap() == DerivedTokens::default()).await;
    world.finish().await;
}

/// Its session is the one that the key has begun, and that was ended.
#[tokio::test]
async fn a_login_that_has_ended_is_not_answered_again() {
    let world = World::start().await;
    let client = world.anonymous();
    for (path, field, login) in [
        ("/api/auth/login", "token", json!({"email": ADMIN, "password": PASSWORD})),
        ("/api/v1/auth/login", "access_token", json!({"email": ADMIN, "password": PASSWORD})),
    ] {
        let key = format!("key {path}").replace(' ', "-");
        let first = post(&client, path, &key, &login).await.expect(200);
        let again = post(&client, path, &key, &login).await.expect(200);
        let token = |answer: &Value| answer[field].as_str().unwrap().to_owned();
        client.with_token(&token(&again)).get("/api/v1/auth/me").await.expect(200);
        client.with_token(&token(&first)).post("/api/v1/auth/logout", json!({})).await.expect(200);
        let refused = post(&client, path, &key, &login).await.error(422);
        assert!(refused.contains("has ended"), "{refused}");
        let fresh = post(&client, path, &format!("{key}-2"), &login).await.expect(200);
        client.with_token(&token(&fresh)).get("/api/v1/auth/me").await.expect(200);
    }
    world.finish().await;
}

/// Its secret is nowhere any more.
#[tokio::test]
async fn what_was_deleted_since_is_not_made_again_by_its_key() {
    let world = World::start().await;
    let agent = world.agent("a").await;
    for (path, id, body) in [
        ("/api/v1/tokens", "/public_id", json!({"name": "t"})),
        ("/api/tokens", "/token/id", json!({"name": "t", "agent_id": agent.id})),
        (
            "/api/v1/webhooks",
            "/public_id",
            json!({"url": "http://127.0.0.1:9/", "events": ["sensor.reading"], "generate_secret": true}),
        ),
    ] {
        let made = post(&world.admin, path, path, &body).await.expect(201);
        let id = made.pointer(id).unwrap();
        let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
        let deleted = world.admin.delete(&format!("{path}/{id}")).await.status;
        assert!([200, 204].contains(&deleted), "{deleted}");
        let refused = post(&world.admin, path, path, &body).await.error(422);
        assert!(refused.contains("deleted since"), "{refused}");
    }
    world.finish().await;
}
