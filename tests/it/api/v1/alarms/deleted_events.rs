//! Events that are deleted while rules watch them: the rules are disabled, whatever the read models show.

use reqwest::Method;
use serde_json::{Value, json};
use signalbox_domain::monitoring::{Channel, ChannelCommand};
use signalbox_test_support::metadata;
use sqlx::{PgPool, Postgres, Transaction};

use super::{path, rule, until};
use crate::{
    api::v1::{
        datapoints::event,
        rules::{self, send},
    },
    harness::{Answer, Client, World},
};

/// Keeps the read models `names` where they are, until it is dropped.
async fn hold(pool: &PgPool, names: &[&str]) -> Transaction<'static, Postgres> {
    let mut held = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    sqlx::query("SELECT FROM read.checkpoints WHERE projection = ANY($1::text[]) FOR UPDATE")
        .bind(names)
        .execute(&mut *held)
        .await
        .unwrap();
    held
}

fn event_path(event: &str) -> String {
    format!("/api/v1/events/{event}")
}

async fn delete(client: &Client, event: &str, version: &str) -> Answer {
    let request = client.request(Method::DELETE, &event_path(event)).header("if-match", version);
    client.send(request).await
}

fn consistency(answer: &Answer) -> Option<&str> {
    answer.header("consistency")
}

#[tokio::test]
async fn a_deletion_says_that_its_rules_are_not_shown_as_disabled() {
    let world = World::start().await;
    // A client that does not wait for what an answer leaves to come.
    let admin = &world.at_one_gateway();
    let boiler = event(&world, "boiler").await;
    let hot = rule(&world, &boiler, json!({})).await;
    send(&world.admin, &boiler, [11.0]).await;
    let firing = until(&world, "firing").await;
    let held = hold(&world.servers.pool, &["automation"]).await;
    let answer = admin.delete(&event_path(&boiler)).await;
    answer.expect(200);
    assert_eq!(consistency(&answer), Some("eventual"));
    held.rollback().await.unwrap();
    world.admin.until(rules::path(&hot), |rule| rule["enabled"] == false).await;
    world.admin.until(path(&firing), |alarm| alarm["state"] == "cleared").await;
    world.finish().await;
}

/// The read model of rules shows it only after the deletion.
#[tokio::test]
async fn a_rule_that_is_not_shown_yet_is_disabled_with_its_event() {
    let world = World::start().await;
    let admin = &world.at_one_gateway();
    let boiler = event(&world, "boiler").await;
    let held = hold(&world.servers.pool, &["automation"]).await;
    let mut silent = rules::above_10("silent", &boiler);
    silent["no_data_seconds"] = json!(60);
    let silent = admin.post(rules::RULES, silent).await.expect(201);
    admin.delete(&event_path(&boiler)).await.expect(200);
    held.rollback().await.unwrap();
    assert!(!is_enabled(&world, &silent).await);
    world.finish().await;
}

/// A gateway may crash after the deletion, and cannot see rules that are set aside, or that come after a thousand others.
#[tokio::test]
async fn a_rule_that_was_left_enabled_is_disabled() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    let hot = rule(&world, &boiler, json!({})).await;
    send(&world.admin, &boiler, [11.0]).await;
    let firing = until(&world, "firing").await;
    let delete = ChannelCommand::Delete { values: false };
    let boiler = boiler.parse().unwrap();
    world.servers.bus.send::<Channel>(boiler, None, &metadata(), &delete).await.unwrap();
    world.admin.until(rules::path(&hot), |rule| rule["enabled"] == false).await;
    world.admin.until(path(&firing), |alarm| alarm["state"] == "cleared").await;
    world.finish().await;
}

/// More of them than are read at a time, and the first by their ids; the log has no such streams.
#[tokio::test]
async fn rules_that_cannot_be_disabled_hide_no_others() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    let hot = rule(&world, &boiler, json!({})).await;
    sqlx::query(
        "INSERT INTO read.rules SELECT (jsonb_populate_record(r, jsonb_build_object(
             'id', lpad(n::text, 32, '0')::uuid, 'name', 'copy ' || n))).* FROM read.rules r, generate_series(1, 150) n",
    )
    .execute(&world.servers.pool)
    .await
    .unwrap();
    let delete = ChannelCommand::Delete { values: false };
    let boiler = boiler.parse().unwrap();
    world.servers.bus.send::<Channel>(boiler, None, &metadata(), &delete).await.unwrap();
    world.admin.until(rules::path(&hot), |rule| rule["enabled"] == false).await;
    sqlx::query("DELETE FROM read.rules WHERE name LIKE 'copy %'")
        .execute(&world.servers.pool)
        .await
        .unwrap();
    world.finish().await;
}

/// Whether the rule `hot` is enabled in the log.
async fn is_enabled(world: &World, hot: &Value) -> bool {
    world.read_models.show_all().await;
    world.admin.get(&rules::path(hot)).await.expect(200)["enabled"] == true
}

#[tokio::test]
async fn a_deletion_of_another_version_leaves_the_rules() {
    let world = World::start().await;
    let admin = &world.at_one_gateway();
    let boiler = event(&world, "boiler").await;
    let hot = rule(&world, &boiler, json!({})).await;
    let before = world.admin.get(&event_path(&boiler)).await;
    let before = before.header("etag").unwrap().to_owned();
    let held = hold(&world.servers.pool, &["monitoring"]).await;
    let changed = admin.put(&event_path(&boiler), json!({"unit": "bar"})).await;
    changed.expect(200);
    assert_eq!(consistency(&changed), Some("eventual"));
    // The version that the read model still shows.
    delete(admin, &boiler, &before).await.error(412);
    held.rollback().await.unwrap();
    assert!(is_enabled(&world, &hot).await);
    let now = changed.header("etag").unwrap().to_owned();
    delete(&world.admin, &boiler, &now).await.expect(200);
    assert!(!is_enabled(&world, &hot).await);
    world.finish().await;
}

/// It is recorded: whether alarms show it is another question.
#[tokio::test]
async fn a_change_is_answered_although_it_is_unknown_what_alarms_show() {
    let world = World::start().await;
    let admin = &world.at_one_gateway();
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    let hot = rule(&world, &boiler, json!({})).await;
    let mut other = rules::above_10("other", &vat);
    other["alarm"] = json!(true);
    let other = rules::create(&world, other).await;
    for (name, by) in
        [("table away", "ALTER TABLE ops.alarm_judges RENAME TO judges_elsewhere"), ("locked", "")]
    {
        let mut locked = signalbox_database::begin(&world.servers.pool, "BEGIN").await.unwrap();
        match by {
            "" => {
                let lock = "LOCK TABLE ops.alarm_judges IN ACCESS EXCLUSIVE MODE";
                sqlx::query(lock).execute(&mut *locked).await.unwrap();
            }
            by => drop(sqlx::query(by).execute(&world.servers.pool).await.unwrap()),
        }
        let answers = match name {
            "locked" => [admin.delete(&rules::path(&hot)).await, admin.delete(&event_path(&vat)).await],
            _ => [
                admin.put(&rules::path(&hot), json!({"threshold": 12})).await,
                admin.put(&rules::path(&other), json!({"threshold": 12})).await,
            ],
        };
        for answer in &answers {
            answer.expect(200);
            assert_eq!(consistency(answer), Some("eventual"), "{name}");
        }
        locked.rollback().await.unwrap();
        if !by.is_empty() {
            let back = "ALTER TABLE ops.judges_elsewhere RENAME TO alarm_judges";
            sqlx::query(back).execute(&world.servers.pool).await.unwrap();
        }
    }
    world.admin.get(&rules::path(&hot)).await.error(404);
    world.admin.get(&event_path(&vat)).await.error(404);
    assert!(!is_enabled(&world, &other).await);
    world.finish().await;
}
