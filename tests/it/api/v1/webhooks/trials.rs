//! Trying a subscription out.

use serde_json::json;

use super::{WEBHOOKS, path, start_experiment, stop_experiment, subscribe, until_newest};
use crate::harness::{Receiver, World};

#[tokio::test]
async fn a_test_delivery_ignores_the_subscribed_types() {
    let world = World::start().await;
    let receiver = Receiver::signed("secret").await;
    let body = json!({"url": receiver.url(), "secret": "secret", "events": ["system.health_changed"]});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    let answer = world.admin.post(&format!("{}/test", path(&webhook)), json!({})).await;
    let delivery = answer.expect(201);
    let location = answer.header("location").unwrap().to_owned();
    let got = receiver.until_got(1).await;
    assert_eq!((got[0].refused, &got[0].json()["type"]), (None, &json!("webhook.test")));
    let delivered = until_newest(&world, &webhook, "delivered").await;
    assert_eq!(delivered["public_id"], delivery["public_id"]);
    assert_eq!(world.admin.get(&location).await.expect(200)["body"], got[0].body);
    world.admin.put(&path(&webhook), json!({"enabled": false})).await.expect(200);
    world.admin.post(&format!("{}/test", path(&webhook)), json!({})).await.error(409);
    world.finish().await;
}

#[tokio::test]
async fn a_dry_run_shows_what_the_filter_lets_through_and_sends_nothing() {
    let world = World::start().await;
    let experiment = start_experiment(&world, "one").await;
    stop_experiment(&world, &experiment).await;
    let receiver = Receiver::start().await;
    let webhook = subscribe(&world, &receiver, &["experiment.stopped"]).await;
    let dry_run = format!("{}/dry-run", path(&webhook));
    let run = async |body| world.admin.post(&dry_run, body).await.expect(200);
    let own = run(json!({})).await;
    assert_eq!((&own["matched"], &own["complete"]), (&json!(1), &json!(true)));
    assert_eq!(own["data"][0]["event_type"], "experiment.stopped");
    let body: serde_json::Value = serde_json::from_str(own["data"][0]["body"].as_str().unwrap()).unwrap();
    assert_eq!(body["experiment_id"], json!(experiment));
    assert_eq!(run(json!({"events": ["experiment.started", "experiment.stopped"]})).await["matched"], 2);
    assert_eq!(run(json!({"from": "2999-01-01T00:00:00Z"})).await["matched"], 0);
    assert_eq!(
        run(json!({"from": "2020-01-01T00:00:00Z", "to": "2021-01-01T00:00:00Z"})).await["matched"],
        0
    );
    assert_eq!(receiver.got().len(), 0);
    world.finish().await;
}
