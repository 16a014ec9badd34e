//! Agents as users see them, and their tokens.

use serde_json::{Value, json};

use crate::harness::{
    AgentAccount, Client, Folder, RealAgent,
    Transport::{Polling, Websocket},
    World, eventually, eventually_some, seconds,
};

#[tokio::test]
async fn an_agent_keeps_what_a_change_leaves_out() {
    let world = World::start().await;
    let answer =
        world.admin.post("/api/agents", json!({"name": "press", "type": "client", "description": "d"})).await;
    let made = answer.expect(201);
    let path = format!("/api/agents/{}", made["id"]);
    assert_eq!(answer.header("location"), Some(path.as_str()));
    assert_eq!(
        (&made["status"], &made["type"], &made["transport_mode"]),
        (&json!("offline"), &json!("client"), &Value::Null)
    );
    let renamed =
        world.admin.put(&path, json!({"name": "new", "id": 9, "status": "online"})).await.expect(200);
    assert_eq!(
        (&renamed["name"], &renamed["type"], &renamed["description"], &renamed["status"]),
        (&json!("new"), &json!("client"), &json!("d"), &json!("offline"))
    );
    assert_eq!(renamed["created_at"], made["created_at"]);
    let cleared = world.admin.put(&path, json!({"description": null})).await.expect(200);
    assert_eq!(cleared["description"], Value::Null);
    let default = world.admin.post("/api/agents", json!({"name": "x"})).await.expect(201);
    assert_eq!(default["type"], "server");
    world.finish().await;
}

#[tokio::test]
async fn an_agent_that_jobs_use_cannot_be_deleted() {
    let world = World::start().await;
    let (one, two) = (world.agent("one").await, world.agent("two").await);
    let job = json!({"name": "nightly", "source_agent_id": one.id, "destination_agent_id": two.id, "source_path": "/a",
        "destination_path": "/b"});
    let job = world.admin.post("/api/jobs", job).await.id();
    for agent in [&one, &two] {
        let error = world.admin.delete(&format!("/api/agents/{}", agent.id)).await.error(409);
        assert!(error.contains("nightly") && error.contains(&job.to_string()), "{error}");
    }
    world.admin.put(&format!("/api/jobs/{job}"), json!({"destination_agent_id": one.id})).await.expect(200);
    world.admin.delete(&format!("/api/agents/{}", two.id)).await.expect(204);
    world.admin.delete(&format!("/api/jobs/{job}")).await.expect(204);
    world.admin.delete(&format!("/api/agents/{}", one.id)).await.expect(204);
    world.admin.get(&format!("/api/agents/{}", one.id)).await.error(404);
    // Its tokens went with it.
    eventually(seconds(5), async || {
        world.as_agent(&one).post("/api/agent/ack", json!({"message_ids": []})).await.status == 401
    })
    .await;
    let tokens = world.admin.get("/api/tokens").await.expect(200);
    assert_eq!(tokens, json!([]));
    let job = json!({"name": "j", "source_agent_id": one.id, "destination_agent_id": one.id, "source_path": "/a",
        "destination_path": "/b"});
    world.admin.post("/api/jobs", job).await.error(400);
    world.finish().await;
}

#[tokio::test]
async fn a_connection_test_makes_the_round_trip() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let (one, two) = (world.agent("one").await, world.agent("two").await);
    let (folder, url) = (Folder::new(), world.anonymous().url(""));
    // While the mailboxes have no leader, the answer reports that.
    let asked = async |client: &Client, agent: &AgentAccount| {
        let answer = client.post(&format!("/api/agents/{}/test", agent.id), json!({})).await;
        (answer.status != 503).then(|| answer.expect(200))
    };
    let away = eventually_some(seconds(20), async || asked(&world.admin, &one).await).await;
    assert_eq!(away, json!({"connected": false, "round_trip_ms": null}));
    let by_socket = RealAgent::start(&url, &one.token, &folder, Websocket);
    let by_polls = RealAgent::start(&url, &two.token, &folder, Polling);
    for agent in [&one, &two] {
        world.until_agent(agent, "online").await;
        // Asked of a gateway that the agent is not connected to.
        let tested = eventually_some(seconds(20), async || {
            asked(&there, agent).await.filter(|tested| tested["connected"] == true)
        })
        .await;
        assert!(tested["round_trip_ms"].as_i64().is_some_and(|ms| ms >= 0), "{tested}");
    }
    world.until_mail_is_gone().await;
    by_socket.stop().await;
    by_polls.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn an_agent_shows_its_machine_and_whether_it_is_there() {
    let world = World::start().await;
    let account = world.agent("one").await;
    let (folder, url) = (Folder::new(), world.anonymous().url(""));
    let agent = RealAgent::start(&url, &account.token, &folder, Websocket);
    let shown = world.until_agent(&account, "online").await;
    assert_eq!(shown["transport_mode"], "websocket");
    let path = format!("/api/agents/{}", account.id);
    let described = async || world.admin.get(&path).await.expect(200)["version"].is_string();
    eventually(seconds(30), described).await;
    let shown = world.admin.get(&path).await.expect(200);
    assert!(
        shown["hostname"].is_string() && shown["system"].is_string() && shown["ip_address"].is_string(),
        "{shown}"
    );
    assert!(shown["last_seen"].is_string());
    agent.stop().await;
    world.until_agent(&account, "offline").await;
    let agent = RealAgent::start(&url, &account.token, &folder, Polling);
    assert_eq!(world.until_agent(&account, "online").await["transport_mode"], "polling");
    agent.stop().await;
    world.finish().await;
}

#[tokio::test]
async fn a_revoked_token_ends_the_live_session() {
    let mut world = World::start().await;
    let other = world.another_gateway().await;
    let there = world.admin.at(&other);
    let account = world.agent("one").await;
    let mut socket = super::agent::open_socket(&world.as_agent(&account)).await;
    world.until_agent(&account, "online").await;
    there.delete(&format!("/api/tokens/{}", account.token_id)).await.expect(204);
    let ended = async {
        use futures::StreamExt;
        while let Some(Ok(frame)) = socket.next().await {
            if frame.is_close() {
                return;
            }
        }
    };
    tokio::time::timeout(seconds(30), ended).await.expect("the socket was closed");
    world.until_agent(&account, "offline").await;
    there.delete(&format!("/api/tokens/{}", account.token_id)).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn tokens_are_listed_without_their_value() {
    let world = World::start().await;
    let (one, two) = (world.agent("one").await, world.agent("two").await);
    let body = json!({"name": "extra", "agent_id": two.id, "description": "d", "expires_in": 30});
    let made = world.admin.post("/api/tokens", body).await.expect(201);
    let days: chrono::DateTime<chrono::Utc> = made["token"]["expires_at"].as_str().unwrap().parse().unwrap();
    assert!((29..=30).contains(&(days - world.clock.now()).num_days()));
    let listed = world.admin.get("/api/tokens").await.expect(200);
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|token| token["id"].as_i64().unwrap()).collect();
    assert_eq!(ids, [made["token"]["id"].as_i64().unwrap(), two.token_id, one.token_id]);
    assert!(listed.as_array().unwrap().iter().all(|token| token.get("value").is_none()));
    let of_two = world.admin.get(&format!("/api/tokens?agent_id={}", two.id)).await;
    assert_eq!(of_two.header("x-total-count"), Some("2"));
    for not_positive in [json!(0), json!(-5), Value::Null] {
        let body = json!({"name": "t", "agent_id": one.id, "expires_in": not_positive});
        assert_eq!(
            world.admin.post("/api/tokens", body).await.expect(201)["token"]["expires_at"],
            Value::Null
        );
    }
    world.finish().await;
}

#[tokio::test]
async fn agents_are_listed_by_name_then_id() {
    let world = World::start().await;
    let mut ids = Vec::new();
    for name in ["store", "press", "press", "archive"] {
        ids.push(world.agent(name).await.id);
    }
    let listed = world.admin.get("/api/agents").await.expect(200);
    let listed: Vec<_> =
        listed.as_array().unwrap().iter().map(|agent| agent["id"].as_i64().unwrap()).collect();
    assert_eq!(listed, [ids[3], ids[1], ids[2], ids[0]]);
    world.finish().await;
}
