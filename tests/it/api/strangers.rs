//! Forged tokens.

use chrono::TimeDelta;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_config::Config;
use sqlx::{Connection, Executor, PgConnection};
use tokio::time::timeout;

use crate::harness::{Client, World, eventually, seconds};

/// Look-ups that one address may have at once.
const BURST: u32 = 20;

fn made_up(client: &Client, kind: &str, number: u32) -> Client {
    client.with_token(&format!("{kind}{number:0>43}"))
}

#[tokio::test]
async fn made_up_tokens_are_refused_before_the_database_is_asked() {
    let clock = Clock::manual(Clock::system().now());
    let adjust = |config: &mut Config| {
        (config.limits.requests_per_minute, config.limits.request_burst) = (60, BURST);
    };
    let world = World::at(clock.clone(), adjust).await;
    let agent = world.as_agent(&world.agent("press").await);
    clock.advance(TimeDelta::minutes(5));
    let client = world.at_one_gateway();
    let token = client.post("/api/v1/tokens", json!({"name": "press"})).await.expect(201);
    let valid = client.with_token(token["token"].as_str().unwrap());
    valid.get("/api/v1/auth/me").await.expect(200);
    let agent = agent.at(&client);
    let file = "/api/files/1000000/download";
    agent.get(file).await.error(404);
    for (kind, path, table) in
        [("sb_", "/api/v1/auth/me", "read.api_tokens"), ("", file, "read.agent_tokens")]
    {
        clock.advance(TimeDelta::minutes(5));
        for number in 0..BURST {
            made_up(&client, kind, number).get(path).await.error(401);
        }
        // Nothing can be looked up now.
        let mut held = PgConnection::connect(&world.servers.database_url).await.unwrap();
        held.execute(format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE").as_str()).await.unwrap();
        for number in BURST..2 * BURST {
            let client = made_up(&client, kind, number);
            let answer = timeout(seconds(5), client.get(path)).await.expect("no look-up is awaited");
            assert_eq!(answer.status, 429);
        }
        held.execute("ROLLBACK").await.unwrap();
        // Tokens that were valid lately are not refused with them.
        valid.get("/api/v1/auth/me").await.expect(200);
        agent.get(file).await.error(404);
    }
    clock.advance(TimeDelta::seconds(1));
    eventually(seconds(10), async || {
        made_up(&client, "sb_", 1000).get("/api/v1/auth/me").await.status == 401
    })
    .await;
    world.finish_with_mail().await;
}
