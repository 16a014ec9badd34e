//! Delivering again: one, all that failed, and past events to a subscription that came later.

use serde_json::{Value, json};

use super::{deliveries, path, start_experiment, stop_experiment, subscribe, until_newest};
use crate::harness::{Behaviour, Receiver, World, eventually, seconds};

async fn test(world: &World, webhook: &Value) {
    world.admin.post(&format!("{}/test", path(webhook)), json!({})).await.expect(201);
}

#[tokio::test]
async fn what_was_delivered_or_given_up_is_delivered_again_under_its_id() {
    let world = World::start().await;
    let receiver = Receiver::start().await;
    let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
    test(&world, &webhook).await;
    let delivered = until_newest(&world, &webhook, "delivered").await;
    let again =
        format!("{}/deliveries/{}/redeliver", path(&webhook), delivered["public_id"].as_str().unwrap());
    let requeued = world.admin.post(&again, json!({})).await.expect(200);
    assert_eq!(requeued["redeliveries"], 1);
    let got = receiver.until_got(2).await;
    assert_eq!((&got[0].body, got[0].header("x-webhook-id")), (&got[1].body, got[1].header("x-webhook-id")));
    assert_eq!(got[1].header("x-webhook-attempt"), "1", "with attempts of its own");
    until_newest(&world, &webhook, "delivered").await;
    receiver.behave(Behaviour::Hold);
    world.admin.post(&again, json!({})).await.expect(200);
    receiver.until_held(1).await;
    world.admin.post(&again, json!({})).await.error(409);
    receiver.behave(Behaviour::Accept);
    until_newest(&world, &webhook, "delivered").await;
    let unknown =
        format!("{}/deliveries/{}/redeliver", path(&webhook), webhook["public_id"].as_str().unwrap());
    world.admin.post(&unknown, json!({})).await.error(404);
    world.finish().await;
}

#[tokio::test]
async fn all_that_was_given_up_since_a_time_is_delivered_again() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::Answer(500)).await;
    let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
    for _ in 0..3 {
        test(&world, &webhook).await;
    }
    eventually(seconds(40), async || deliveries(&world, &webhook, "status=dead_letter").await.len() == 3)
        .await;
    receiver.behave(Behaviour::Accept);
    let again = format!("{}/redeliver", path(&webhook));
    let since = async |since: &str| world.admin.post(&again, json!({"since": since})).await.expect(200);
    assert_eq!(since("2999-01-01T00:00:00Z").await["redelivered"], 0);
    let all = since("2026-01-01T00:00:00Z").await;
    assert_eq!((&all["redelivered"], &all["more"]), (&json!(3), &json!(false)));
    eventually(seconds(20), async || deliveries(&world, &webhook, "status=delivered").await.len() == 3).await;
    assert_eq!(receiver.got().len(), 12);
    world.finish().await;
}

#[tokio::test]
async fn a_later_subscription_gets_past_events_on_request_and_once() {
    let world = World::start().await;
    let experiment = start_experiment(&world, "first").await;
    world
        .admin
        .put(&format!("/api/v1/experiments/{experiment}"), json!({"name": "renamed"}))
        .await
        .expect(200);
    stop_experiment(&world, &experiment).await;
    let receiver = Receiver::start().await;
    let webhook = subscribe(&world, &receiver, &["experiment.started", "experiment.stopped"]).await;
    let second = start_experiment(&world, "second").await;
    receiver.until_got(1).await;
    let replay = format!("{}/replay", path(&webhook));
    let from = json!({"from": "2026-01-01T00:00:00Z"});
    for _ in 0..2 {
        world.admin.post(&replay, from.clone()).await.expect(202);
        let is_done = async || world.admin.get(&path(&webhook)).await.expect(200)["replaying"] == false;
        eventually(seconds(20), is_done).await;
    }
    let got = receiver.until_got(3).await;
    let mut bodies: Vec<_> = got.iter().map(|got| got.json()).collect();
    bodies.sort_by_key(|body| body["time"].as_str().unwrap().to_owned());
    let bodies: Vec<_> = bodies.iter().map(|body| (&body["type"], &body["experiment_name"])).collect();
    // Each by the name that it had then.
    let expected = [
        ("experiment.started", "first"),
        ("experiment.stopped", "renamed"),
        ("experiment.started", "second"),
    ];
    assert_eq!(bodies.len(), 3, "delivered events are not delivered again: {bodies:?}");
    for ((kind, name), (expected_kind, expected_name)) in bodies.iter().zip(expected) {
        assert_eq!((kind.as_str(), name.as_str()), (Some(expected_kind), Some(expected_name)));
    }
    stop_experiment(&world, &second).await;
    receiver.until_got(4).await;
    world.finish().await;
}
