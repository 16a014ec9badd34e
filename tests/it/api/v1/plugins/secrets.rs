//! Secrets of an instance's configuration, which are shown to controllers alone, and how they are kept.

use serde_json::{Value, json};
use signalbox_domain::{
    identity::{ApiToken, ApiTokenCommand, NewApiToken},
    kernel::UserId,
};
use signalbox_test_support::metadata;

use super::{
    WEATHER,
    instances::{instance, path},
};
use crate::harness::{Client, Wheel, World, eventually, seconds, sha256};

#[tokio::test]
async fn a_password_in_a_configuration_is_shown_and_kept_encrypted() {
    let world = World::start().await;
    let config = r#"{"poll_interval_ms": 500, "password": "geheim"}"#;
    let body = json!({"plugin_id": "system", "instance_name": "One", "auto_create_events": false,
        "config_json": config});
    let made = instance(&world, body).await;
    let path = path(&made);
    let shown = world.admin.get(&path).await.expect(200);
    let listed = world.admin.get("/api/v1/plugins").await.expect(200);
    assert_eq!((&shown["config_json"], &listed["data"][0]["config_json"]), (&json!(config), &json!(config)));
    // The same again changes nothing, although it would be sealed otherwise.
    world.admin.put(&path, json!({"config_json": format!(" {config}")})).await.expect(200);
    assert_eq!(world.count_events("plugin_instance_updated").await, 0);
    let other = config.replace("geheim", "auch geheim");
    let changed = world.admin.put(&path, json!({"config_json": other})).await.expect(200);
    assert_eq!(changed["config_json"], json!(other));
    let kept = "SELECT count(*) FROM (SELECT payload::text AS text FROM events
            UNION ALL SELECT config::text FROM read.plugin_instances) kept WHERE text LIKE '%geheim%'";
    let kept: i64 = sqlx::query_scalar(kept).fetch_one(&world.servers.pool).await.unwrap();
    assert_eq!(kept, 0);
    world.finish().await;
}

/// A plugin with a secret in its configuration.
fn with_secret() -> Wheel {
    let field = "    stations: int = Field(default=1";
    let secret = "    key: str = Field(default='', json_schema_extra={'writeOnly': True})\n";
    Wheel::new("weather_plugin", "signalbox.plugins", &WEATHER.replace(field, &format!("{secret}{field}")))
}

fn key_of(instance: &Value) -> Value {
    serde_json::from_str::<Value>(instance["config_json"].as_str().unwrap()).unwrap()["key"].clone()
}

async fn token(owner: &Client, body: Value) -> (Client, String) {
    let made = owner.post("/api/v1/tokens", body).await.expect(201);
    (owner.with_token(made["token"].as_str().unwrap()), made["public_id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn secrets_of_a_configuration_are_shown_to_controllers_alone() {
    const SECRET: &str = "k3y-of-the-station";
    let world = World::start().await;
    with_secret().upload(&world.admin).await.expect(201);
    let config = json!({"key": SECRET, "stations": 2}).to_string();
    let body = json!({"plugin_id": "weather", "instance_name": "Roof", "config_json": config});
    let made = instance(&world, body).await;
    let path = path(&made);
    let operator = world.user("operator", "operator").await;
    let (program, _) = token(&operator, json!({"name": "program"})).await;
    let (controller, _) = token(&operator, json!({"name": "controller", "controller": true})).await;
    for client in [&world.admin, &operator, &program] {
        for answer in [client.get(&path).await, client.get("/api/v1/plugins").await] {
            let text = answer.expect(200).to_string();
            assert!(!text.contains(SECRET) && text.contains("[redacted]"), "{text}");
        }
    }
    assert_eq!(key_of(&controller.get(&path).await.expect(200)), SECRET);
    assert_eq!(key_of(&controller.get("/api/v1/plugins").await.expect(200)["data"][0]), SECRET);
    let viewer = world.user("viewer", "viewer").await;
    viewer.post("/api/v1/tokens", json!({"name": "t", "controller": true})).await.error(403);
    // The shown configuration is sent back: unchanged, it changes nothing; with another value, the secret stays.
    let shown = operator.get(&path).await.expect(200)["config_json"].clone();
    operator.put(&path, json!({"config_json": shown})).await.expect(200);
    assert_eq!(world.count_events("plugin_instance_updated").await, 0);
    let other = shown.as_str().unwrap().replace('2', "3");
    let changed = operator.put(&path, json!({"config_json": other})).await.expect(200);
    assert!(!changed.to_string().contains(SECRET), "{changed}");
    let seen = controller.get(&path).await.expect(200);
    assert_eq!(key_of(&seen), SECRET);
    assert!(seen["config_json"].as_str().unwrap().contains('3'), "{seen}");
    let nothing_known = json!({"plugin_id": "weather", "instance_name": "B", "config_json": other});
    operator.post("/api/v1/plugins", nothing_known).await.error(422);
    world.finish().await;
}

/// Makes a token as an earlier version made it, which did not know of controllers.
async fn old_token(world: &World, owner: &Client, name: &str) -> Client {
    let me = owner.get("/api/v1/auth/me").await.expect(200);
    let secret = format!("sb_{name}{}", "x".repeat(43));
    let new = NewApiToken {
        user: UserId(me["public_id"].as_str().unwrap().parse().unwrap()),
        name: name.to_owned(),
        secret_sha256: sha256(secret.as_bytes()).parse().unwrap(),
        expires_at: None,
        controller: None,
    };
    let command = ApiTokenCommand::Create(new);
    world.servers.bus.send::<ApiToken>(world.clock.new_id(), None, &metadata(), &command).await.unwrap();
    let client = owner.with_token(&secret);
    eventually(seconds(10), async || client.get("/api/v1/auth/me").await.status == 200).await;
    client
}

#[tokio::test]
async fn an_older_token_that_reported_is_a_controllers() {
    let world = World::start().await;
    with_secret().upload(&world.admin).await.expect(201);
    let config = json!({"key": "k"}).to_string();
    let body = json!({"plugin_id": "weather", "instance_name": "Roof", "config_json": config});
    let path = path(&instance(&world, body).await);
    let (one, other) = (world.user("one", "operator").await, world.user("other", "operator").await);
    // The report is in the log before its token is asked about, as after an update of the service.
    one.put(&format!("{path}/status"), json!({"status": "connected"})).await.expect(200);
    let (reported, silent) = (old_token(&world, &one, "a").await, old_token(&world, &other, "b").await);
    for _ in 0..2 {
        assert_eq!(key_of(&reported.get(&path).await.expect(200)), "k");
        assert_eq!(key_of(&silent.get(&path).await.expect(200)), "[redacted]");
    }
    let listed = async || one.get("/api/v1/tokens").await.expect(200)["data"][0]["controller"] == json!(true);
    eventually(seconds(10), listed).await;
    // The other one shows what it is by its first report.
    silent.put(&format!("{path}/status"), json!({"status": "connected"})).await.expect(200);
    eventually(seconds(10), async || key_of(&silent.get(&path).await.expect(200)) == "k").await;
    // A new token without the flag stays without.
    let (program, _) = token(&other, json!({"name": "program"})).await;
    program.put(&format!("{path}/status"), json!({"status": "connected"})).await.expect(200);
    assert_eq!(key_of(&program.get(&path).await.expect(200)), "[redacted]");
    world.finish().await;
}
