//! Secrets stay out of the log and of everything derived from it.

use serde_json::{Value, json};

use super::{LOG, all};
use crate::harness::{World, eventually, seconds};

/// Part of each secret that is planted.
const MARK: &str = "gehe1m";

/// Names of all columns of texts and documents in the log and beside it.
async fn text_columns(world: &World) -> Vec<(String, String)> {
    sqlx::query_as(
        "SELECT format('%I.%I', table_schema, table_name), column_name::text FROM information_schema.columns
          WHERE table_schema IN ('public', 'read', 'ops') AND data_type IN ('text', 'jsonb', 'ARRAY', 'bytea')
            AND table_name NOT LIKE '\\_sqlx%'",
    )
    .fetch_all(&world.servers.pool)
    .await
    .unwrap()
}

async fn rows_with(world: &World, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (table, column) in text_columns(world).await {
        let search = format!(
            "SELECT count(*) FROM {table} WHERE position($1::text IN {column}::text) > 0
                OR position(encode(convert_to($1::text, 'UTF8'), 'hex') IN {column}::text) > 0"
        );
        let count: i64 =
            sqlx::query_scalar(&search).bind(secret).fetch_one(&world.servers.pool).await.unwrap();
        if count > 0 {
            found.push(format!("{table}.{column}"));
        }
    }
    found
}

/// Plants a secret in every field that takes one, and returns those that the service made by itself.
async fn plant(world: &World) -> Vec<String> {
    let admin = &world.admin;
    let password = |number: u32| format!("{MARK} password {number}");
    let user =
        json!({"email": "sam@example.org", "username": "sam", "password": password(1), "role": "operator"});
    let user = admin.post("/api/v1/users", user).await.expect(201);
    let path = format!("/api/v1/users/{}", user["public_id"].as_str().unwrap());
    admin.put(&path, json!({"password": password(2)})).await.expect(200);
    let client = world.anonymous().log_in("sam", &password(2)).await;
    let change = json!({"old_password": password(2), "new_password": password(3)});
    client.post("/api/auth/password", change).await.expect(200);
    let client = world.anonymous().log_in("sam", &password(3)).await;
    world
        .anonymous()
        .post("/api/auth/login", json!({"email": "sam", "password": password(4)}))
        .await
        .error(401);
    let made = client.post("/api/v1/tokens", json!({"name": "t"})).await.expect(201);
    let webhook = json!({"url": "http://127.0.0.1:9/x", "events": ["sensor.reading"], "secret": format!("{MARK} webhook one")});
    let webhook = admin.post("/api/v1/webhooks", webhook).await.expect(201);
    let path = format!("/api/v1/webhooks/{}", webhook["public_id"].as_str().unwrap());
    admin.put(&path, json!({"secret": format!("{MARK} webhook two")})).await.expect(200);
    let config = json!({"rate": 1, "mqtt": {"api_key": format!("{MARK} key")}}).to_string();
    let plugin = json!({"plugin_id": "simulated", "instance_name": "p", "auto_create_events": false,
        "config_json": config});
    admin.post("/api/v1/plugins", plugin).await.expect(201);
    let agent = world.agent("a").await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    vec![text(&made["token"]), agent.token, client.token.unwrap(), admin.token.clone().unwrap()]
}

#[tokio::test]
async fn no_secret_is_in_the_log_or_in_a_read_model() {
    let world = World::start().await;
    let made = plant(&world).await;
    eventually(seconds(20), async || world.count_events("log_entry_written").await >= 4).await;
    assert_eq!(rows_with(&world, MARK).await, Vec::<String>::new());
    for secret in &made {
        assert_eq!(rows_with(&world, secret).await, Vec::<String>::new(), "{}…", &secret[..5]);
    }
    world.finish_with_mail().await;
}

/// Nor does it show what was made of them.
#[tokio::test]
async fn the_log_shows_neither_hashes_nor_sealed_texts() {
    let world = World::start().await;
    let made = plant(&world).await;
    let hashes: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT value FROM events, jsonb_each_text(payload)
          WHERE key IN ('password_hash', 'secret_sha256', 'sealed_secret') AND value IS NOT NULL
         UNION SELECT payload->'config'->>'sealed' FROM events WHERE payload->'config' ? 'sealed'",
    )
    .fetch_all(&world.servers.pool)
    .await
    .unwrap();
    assert!(hashes.len() >= 6, "{}", hashes.len());
    let events = all(&world.admin, "order=oldest").await;
    let mut shown: Vec<String> = events.iter().map(Value::to_string).collect();
    for event in &events {
        let stream = format!(
            "{LOG}/streams/{}/{}",
            event["stream_type"].as_str().unwrap(),
            event["stream_id"].as_str().unwrap()
        );
        shown.push(world.admin.get(&stream).await.text());
    }
    for text in &shown {
        for secret in hashes.iter().chain(&made).map(String::as_str).chain([MARK]) {
            assert!(!text.contains(secret), "{}… in {text}", &secret[..5]);
        }
    }
    world.finish_with_mail().await;
}
