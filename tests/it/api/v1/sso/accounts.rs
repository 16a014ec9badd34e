//! Which account it is.

use futures::future::join_all;
use serde_json::{Value, json};

use super::{Outcome, PUBLIC, Site, exchange, person};
use crate::harness::{OpenIdProvider, PASSWORD, World};

fn error(code: &str) -> Outcome {
    Outcome::Error(code.to_owned())
}

/// The record of the user with this name.
async fn user(world: &World, name: &str) -> Value {
    let users = world.admin.get(&format!("/api/v1/users?name={name}")).await.expect(200);
    users["data"].as_array().unwrap().iter().find(|user| user["username"] == name).unwrap().clone()
}

fn path(user: &Value) -> String {
    format!("/api/v1/users/{}", user["public_id"].as_str().unwrap())
}

#[tokio::test]
async fn a_verified_address_links_the_account_that_has_it() {
    let mut shouting = person("ada");
    shouting["email"] = json!("ADA@Example.org");
    let site = Site::start(json!({"at-the-provider": shouting})).await;
    site.world.user("ada", "operator").await;
    let before = user(&site.world, "ada").await;
    assert_eq!(before["sso_provider"], Value::Null);
    let me = site.log_in("at-the-provider").await;
    assert_eq!(me["public_id"], before["public_id"]);
    assert_eq!((&me["role"], &me["email"]), (&json!("operator"), &json!("ada@example.org")));
    assert_eq!(me["sso_provider"], "Plant");
    // The password still works, and an address that changes here changes nothing there.
    site.world.admin.put(&path(&me), json!({"email": "other@example.org"})).await.expect(200);
    assert_eq!(site.log_in("at-the-provider").await["public_id"], before["public_id"]);
    site.world.anonymous().log_in("ada", PASSWORD).await;
    site.finish().await;
}

#[tokio::test]
async fn an_admin_is_not_linked_but_a_linked_user_may_become_admin() {
    let site = Site::start(json!({"boss": person("boss"), "ada": person("ada")})).await;
    site.world.user("boss", "admin").await;
    let outcome = site.come_as("boss").await;
    site.expect_failure(outcome, "admin_account").await;
    assert_eq!(user(&site.world, "boss").await["sso_provider"], Value::Null);
    // A role that only a newer release knows may be more than an admin's.
    let role = async |role: &str| {
        let set = sqlx::query("UPDATE read.users SET role = $1 WHERE username = 'boss'").bind(role);
        set.execute(&site.world.servers.pool).await.unwrap();
    };
    role("owner").await;
    let outcome = site.come_as("boss").await;
    site.expect_failure(outcome, "admin_account").await;
    role("admin").await;
    let ada = site.log_in("ada").await;
    site.world.admin.put(&path(&ada), json!({"role": "admin"})).await.expect(200);
    assert_eq!(site.log_in("ada").await["role"], "admin");
    site.finish().await;
}

#[tokio::test]
async fn one_person_of_a_provider_has_an_account() {
    let mut second = person("second");
    second["email"] = json!("first@example.org");
    let site = Site::start(json!({"first": person("first"), "second": second})).await;
    let me = site.log_in("first").await;
    let outcome = site.come_as("second").await;
    site.expect_failure(outcome, "other_identity").await;
    assert_eq!(site.log_in("first").await["public_id"], me["public_id"]);
    site.finish().await;
}

#[tokio::test]
async fn a_user_name_that_is_taken_gets_a_suffix() {
    let mut other = person("other");
    other["preferred_username"] = json!("ADMIN");
    let site = Site::start(json!({"other": other})).await;
    let me = site.log_in("other").await;
    let name = me["username"].as_str().unwrap();
    assert!(name.starts_with("ADMIN_") && name.len() == 12, "{name}");
    assert_eq!(me["role"], "viewer");
    site.finish().await;
}

#[tokio::test]
async fn first_logins_at_the_same_time_make_one_account() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let outcomes = join_all((0..4).map(|_| site.come_as("ada"))).await;
    let mut users = Vec::new();
    for outcome in outcomes {
        let out = exchange(&site.browser(), &outcome.code()).await.expect(200);
        users.push(out["public_id"].as_str().unwrap().to_owned());
    }
    users.dedup();
    assert_eq!(users.len(), 1, "{users:?}");
    assert_eq!(site.world.count_events("user_identity_linked").await, 1);
    site.finish().await;
}

#[tokio::test]
async fn a_deleted_user_does_not_get_in_until_an_admin_makes_an_account() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let me = site.log_in("ada").await;
    let code = site.come_as("ada").await.code();
    site.world.admin.delete(&path(&me)).await.expect(200);
    exchange(&site.browser(), &code).await.error(400);
    let outcome = site.come_as("ada").await;
    site.expect_failure(outcome, "account_deleted").await;
    site.world.user("ada", "operator").await;
    let again = site.log_in("ada").await;
    assert_ne!(again["public_id"], me["public_id"]);
    assert_eq!(again["role"], "operator");
    site.finish().await;
}

#[tokio::test]
async fn without_new_accounts_only_existing_users_log_in() {
    let people = json!({"ada": person("ada"), "bob": person("bob")});
    let provider = OpenIdProvider::start(PUBLIC, people).await;
    let world = World::with(|config| {
        provider.configure(&mut config.sso);
        config.sso.create_users = false;
    })
    .await;
    let site = Site { world, provider };
    site.world.user("ada", "viewer").await;
    site.log_in("ada").await;
    assert_eq!(site.come_as("bob").await, error("no_account"));
    site.finish().await;
}

#[tokio::test]
async fn accounts_move_to_another_provider_by_their_verified_address() {
    let site = Site::start(json!({"ada": person("ada")})).await;
    let me = site.log_in("ada").await;
    let Site { mut world, provider: old } = site;
    let new = OpenIdProvider::start(PUBLIC, json!({"ada": person("ada")})).await;
    new.configure(&mut world.config.sso);
    let there = world.another_gateway().await;
    let begun = super::begin(&there).await;
    let back = crate::harness::Surfer::new().log_in(&begun.page, "ada").await;
    let code = super::come_back(&there, &back, Some(&begun.cookie)).await.code();
    assert_eq!(exchange(&there, &code).await.expect(200)["public_id"], me["public_id"]);
    drop(old);
    world.finish().await;
}
