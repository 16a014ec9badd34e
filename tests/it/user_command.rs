//! `signalbox user` and `signalbox token` beside a running service.

use serde_json::{Value, json};

use crate::harness::{ADMIN, Client, PASSWORD, World, eventually, seconds, signalbox};

#[tokio::test]
async fn tokens_are_made_listed_and_revoked() {
    let world = World::start().await;
    let made =
        signalbox(&world.config, &["token", "create", "press", "--user", ADMIN, "--json"]).await.json_lines();
    let client = world.anonymous().with_token(made[0]["token"].as_str().unwrap());
    eventually(seconds(20), async || client.get("/api/v1/auth/me").await.status == 200).await;
    let plain =
        signalbox(&world.config, &["token", "create", "second", "--user", ADMIN, "--days", "0"]).await.well();
    assert!(plain.starts_with("sb_") && plain.trim().len() == 46, "{plain}");
    let listed =
        async || signalbox(&world.config, &["token", "list", "--user", ADMIN, "--json"]).await.json_lines();
    eventually(seconds(20), async || listed().await.len() == 2).await;
    let first = listed().await.into_iter().find(|token| token["name"] == "press").unwrap();
    assert_eq!(first["public_id"], made[0]["public_id"]);
    assert!(listed().await.iter().any(|token| token["expires_at"].is_null()));
    let id = first["public_id"].as_str().unwrap();
    signalbox(&world.config, &["token", "revoke", id]).await.well();
    eventually(seconds(20), async || client.get("/api/v1/auth/me").await.status == 401).await;
    for wrong in
        [["token", "revoke", id, "--config=/dev/null"], ["token", "create", "x", "--user=nobody@example.org"]]
    {
        assert_eq!(signalbox(&world.config, &wrong).await.code, Some(1), "{wrong:?}");
    }
    let users = signalbox(&world.config, &["user", "list", "--json"]).await.json_lines();
    assert_eq!(users[0]["email"], ADMIN);
    world.finish().await;
}

#[tokio::test]
async fn a_user_that_is_revoked_is_out_everywhere_and_may_log_in_again() {
    let world = World::start().await;
    let ada = world.user("ada", "operator").await;
    let elsewhere = world.anonymous().log_in("ada", PASSWORD).await;
    let token = ada.post("/api/v1/tokens", json!({"name": "press"})).await.expect(201);
    let program = world.anonymous().with_token(token["token"].as_str().unwrap());
    let eve = world.user("eve", "operator").await;
    let status = async |client: &Client| client.get("/api/v1/auth/me").await.status;
    assert_eq!(status(&program).await, 200);
    let revoke = async || signalbox(&world.config, &["user", "revoke", "ADA@example.org", "--json"]).await;
    let revoked = revoke().await.json_lines();
    assert_eq!((&revoked[0]["sessions"], &revoked[0]["tokens"]), (&json!(2), &json!(1)));
    for client in [&ada, &elsewhere, &program] {
        eventually(seconds(20), async || status(client).await == 401).await;
    }
    assert_eq!(status(&eve).await, 200);
    let again = revoke().await.json_lines();
    assert_eq!((&again[0]["sessions"], &again[0]["tokens"]), (&json!(0), &json!(0)));
    assert_eq!(status(&world.anonymous().log_in("ada", PASSWORD).await).await, 200);
    let unknown = signalbox(&world.config, &["user", "revoke", "nobody"]).await;
    assert!(unknown.code == Some(1) && unknown.errors.contains("signalbox user list"), "{unknown:?}");
    world.finish().await;
}

#[tokio::test]
async fn read_models_are_compared_and_rebuilt() {
    let world = World::start().await;
    world.user("ada", "viewer").await;
    let status = signalbox(&world.config, &["projections", "status", "--json"]).await.json_lines();
    assert!(status.len() == 6 && status.iter().all(|read| read["head"].is_i64()), "{status:?}");
    let compare = ["projections", "compare", "identity", "--json"];
    eventually(seconds(20), async || signalbox(&world.config, &compare).await.code == Some(0)).await;
    let wrong = "UPDATE read.users SET username = 'mallory' WHERE username = 'ada'";
    sqlx::query(wrong).execute(&world.servers.pool).await.unwrap();
    let found = signalbox(&world.config, &compare).await;
    assert_eq!(found.code, Some(3), "{found:?}");
    let facts: Value = serde_json::from_str(&found.out).unwrap();
    assert_eq!(facts["differences"], 1);
    signalbox(&world.config, &["projections", "rebuild", "identity"]).await.well();
    assert_eq!(signalbox(&world.config, &compare).await.code, Some(0));
    world.finish().await;
}
