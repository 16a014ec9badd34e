//! Silences of rules.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{EVENTS, change_often, listed, path, rule, standing, until, waiting_changes};
use crate::{
    api::v1::{
        datapoints::event,
        rules::{self, above_10, send},
        webhooks::subscribe,
    },
    harness::{Receiver, World, eventually, seconds},
};

async fn silence(world: &World, rule: &Value, seconds: i64) -> Value {
    let until = world.clock.now() + TimeDelta::seconds(seconds);
    let body = json!({"until": until.to_rfc3339(), "comment": "maintenance"});
    world.admin.post(&format!("{}/silence", rules::path(rule)), body).await.expect(200)
}

fn types(receiver: &Receiver) -> Vec<String> {
    receiver.got().iter().map(|got| got.json()["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_silence_holds_back_webhooks_and_not_the_state() {
    let world = standing().await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &EVENTS).await;
    let (boiler, vat) = (event(&world, "boiler").await, event(&world, "vat").await);
    let silenced = rule(&world, &boiler, json!({})).await;
    let mut other = above_10("other", &vat);
    other["alarm"] = json!(true);
    rules::create(&world, other).await;
    let answer = silence(&world, &silenced, 600).await;
    assert_eq!(answer["silence_comment"], "maintenance");
    send(&world.admin, &boiler, [11.0]).await;
    let first = until(&world, "firing").await;
    world.admin.post(&format!("{}/acknowledge", path(&first)), json!({})).await.expect(200);
    world.clock.advance(TimeDelta::seconds(1));
    send(&world.admin, &boiler, [9.0]).await;
    until(&world, "cleared").await;
    world.clock.advance(TimeDelta::seconds(1));
    send(&world.admin, &boiler, [12.0]).await;
    let second = until(&world, "firing").await;
    // The other rule's alarm is published after these would have been.
    send(&world.admin, &vat, [11.0]).await;
    let got = receiver.until_got(1).await;
    assert_eq!(got[0].json()["sensor"], "vat");
    // At its end the alarm that still fires is published.
    world.clock.advance(TimeDelta::seconds(600));
    let got = receiver.until_got(2).await;
    assert_eq!(got[1].json()["alarm_id"], second["public_id"]);
    world.clock.advance(TimeDelta::seconds(1));
    send(&world.admin, &boiler, [9.0]).await;
    receiver.until_got(3).await;
    assert_eq!(types(&receiver), ["alarm.firing", "alarm.firing", "alarm.cleared"]);
    assert_eq!(listed(&world, "").await.len(), 3);
    world.finish().await;
}

#[tokio::test]
async fn at_the_end_of_a_silence_an_alarm_does_not_wait_for_hundreds_of_changes_of_another() {
    let world = World::start().await;
    let receiver = Receiver::lenient().await;
    let (boiler, often) = (event(&world, "boiler").await, event(&world, "often").await);
    let silenced = rule(&world, &boiler, json!({})).await;
    silence(&world, &silenced, 600).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    subscribe(&world, &receiver, &EVENTS).await;
    let mut other = above_10("often", &often);
    other["alarm"] = json!(true);
    rules::create(&world, other).await;
    change_often(&world, &often).await;
    let path = format!("{}/silence", rules::path(&silenced));
    world.admin.post(&path, json!({"until": null})).await.expect(200);
    let published = async || {
        let asked =
            sqlx::query_scalar::<_, bool>("SELECT is_published FROM read.alarms WHERE rule_id = $1::uuid");
        asked.bind(silenced["public_id"].as_str()).fetch_one(&world.servers.pool).await.unwrap()
    };
    eventually(seconds(20), published).await;
    assert!(waiting_changes(&world).await > 0, "all changes of the other one were recorded first");
    eventually(seconds(90), async || waiting_changes(&world).await == 0).await;
    eventually(seconds(20), async || {
        receiver.got().iter().any(|got| got.json()["alarm_id"] == alarm["public_id"])
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn a_silence_can_be_ended() {
    let world = standing().await;
    let receiver = Receiver::start().await;
    subscribe(&world, &receiver, &EVENTS).await;
    let boiler = event(&world, "boiler").await;
    let rule = rule(&world, &boiler, json!({})).await;
    let path = format!("{}/silence", rules::path(&rule));
    silence(&world, &rule, 600).await;
    send(&world.admin, &boiler, [11.0]).await;
    let alarm = until(&world, "firing").await;
    let operator = world.user("operator", "operator").await;
    let ended = operator.post(&path, json!({"until": null})).await.expect(200);
    assert_eq!((&ended["silenced_until"], &ended["silence_comment"]), (&json!(null), &json!(null)));
    let got = receiver.until_got(1).await;
    assert_eq!(got[0].json()["alarm_id"], alarm["public_id"]);
    let viewer = world.user("viewer", "viewer").await;
    viewer.post(&path, json!({"until": null})).await.error(403);
    world.finish().await;
}

#[tokio::test]
async fn a_silence_has_an_end_and_an_alarm() {
    let world = World::start().await;
    let boiler = event(&world, "boiler").await;
    let plain = rules::create(&world, above_10("plain", &boiler)).await;
    let path = format!("{}/silence", rules::path(&plain));
    let (future, past) = ("2999-01-01T00:00:00Z", "2020-01-01T00:00:00Z");
    for body in [json!({"until": past}), json!({"until": future}), json!({}), json!({"until": "tomorrow"})] {
        world.admin.post(&path, body).await.error(422);
    }
    let soon = (world.clock.now() + TimeDelta::hours(1)).to_rfc3339();
    let refused = world.admin.post(&path, json!({ "until": soon })).await;
    assert!(refused.error(409).contains("no alarm"));
    world.admin.post("/api/v1/rules/unknown/silence", json!({ "until": soon })).await.error(404);
    world.finish().await;
}
