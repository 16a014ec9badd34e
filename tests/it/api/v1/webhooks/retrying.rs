//! Subscriptions with `retry: standard`.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use signalbox_clock::Clock;

use super::{WEBHOOKS, deliveries, path, until_newest};
use crate::harness::{Behaviour, Receiver, World, eventually, eventually_some, seconds};

async fn subscribe(world: &World, receiver: &Receiver, retry: &str) -> Value {
    let body = json!({"url": receiver.url(), "events": ["experiment.started"], "retry": retry});
    world.admin.post(WEBHOOKS, body).await.expect(201)
}

async fn test(world: &World, webhook: &Value) {
    world.admin.post(&format!("{}/test", path(webhook)), json!({})).await.expect(201);
}

/// Waits until the newest delivery has had `count` attempts; returns it.
async fn until_attempts(world: &World, webhook: &Value, count: i64) -> Value {
    eventually_some(seconds(20), async || {
        let newest = deliveries(world, webhook, "page_size=1").await.into_iter().next()?;
        (newest["attempts"] == count).then_some(newest)
    })
    .await
}

#[tokio::test]
async fn the_standard_schedule_lasts_for_days() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    let receiver = Receiver::with(None, Behaviour::Answer(500)).await;
    let webhook = subscribe(&world, &receiver, "standard").await;
    assert_eq!(webhook["retry"], "standard");
    test(&world, &webhook).await;
    // As long as the admin's login lasts.
    let waits = [5, 300, 1800, 7200, 18_000, 36_000, 50_400];
    for (attempt, wait) in (1..).zip(waits) {
        let failed = until_attempts(&world, &webhook, attempt).await;
        assert_eq!(failed["status"], "failed");
        let next: DateTime<Utc> = failed["next_attempt_on"].as_str().unwrap().parse().unwrap();
        let left = next - clock.now();
        assert!((left - TimeDelta::seconds(wait)).abs() < TimeDelta::seconds(2), "{attempt}: {left}");
        if attempt < 7 {
            // A little more: the time of the attempt follows PostgreSQL's clock.
            clock.advance(left + TimeDelta::seconds(1));
        }
    }
    assert_eq!(receiver.got().len(), 7);
    world.admin.delete(&path(&webhook)).await.expect(200);
    world.finish().await;
}

#[tokio::test]
async fn a_receiver_postpones_attempts_that_do_not_count() {
    let world = World::start().await;
    for (status, wait) in [(429, "1".to_owned()), (503, "1".to_owned())] {
        let receiver = Receiver::with(None, Behaviour::RetryAfter(status, wait)).await;
        let webhook = subscribe(&world, &receiver, "standard").await;
        test(&world, &webhook).await;
        let got = receiver.until_got(3).await;
        assert!(got.iter().all(|got| got.header("x-webhook-attempt") == "1"));
        assert!(got[2].at - got[0].at >= Duration::from_secs(2));
        receiver.behave(Behaviour::Accept);
        let delivered = until_newest(&world, &webhook, "delivered").await;
        assert_eq!(delivered["attempts"], 1);
    }
    world.finish().await;
}

#[tokio::test]
async fn a_receiver_that_asks_for_no_wait_uses_up_no_attempts() {
    let world = World::start().await;
    for (status, wait) in [(429, "0"), (503, "Thu, 01 Jan 1970 00:00:00 GMT")] {
        let receiver = Receiver::with(None, Behaviour::RetryAfter(status, wait.to_owned())).await;
        let webhook = subscribe(&world, &receiver, "standard").await;
        test(&world, &webhook).await;
        let got = receiver.until_got(3).await;
        assert!(got.iter().all(|got| got.header("x-webhook-attempt") == "1"));
        // It is not asked twenty times within a moment.
        assert!(got[2].at - got[0].at >= Duration::from_secs(2));
        receiver.behave(Behaviour::Accept);
        assert_eq!(until_newest(&world, &webhook, "delivered").await["attempts"], 1);
    }
    world.finish().await;
}

#[tokio::test]
async fn a_delivery_that_waits_is_sent_at_once_on_request() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::RetryAfter(503, "3600".to_owned())).await;
    let webhook = subscribe(&world, &receiver, "standard").await;
    test(&world, &webhook).await;
    let waiting = until_newest(&world, &webhook, "failed").await;
    receiver.behave(Behaviour::Accept);
    let again = format!("{}/deliveries/{}/redeliver", path(&webhook), waiting["public_id"].as_str().unwrap());
    world.admin.post(&again, json!({})).await.expect(200);
    receiver.until_got(2).await;
    until_newest(&world, &webhook, "delivered").await;
    world.finish().await;
}

#[tokio::test]
async fn retry_after_counts_as_a_failure_by_default() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::RetryAfter(503, "3600".to_owned())).await;
    let webhook = subscribe(&world, &receiver, "default").await;
    test(&world, &webhook).await;
    let dead = until_newest(&world, &webhook, "dead_letter").await;
    assert_eq!((&dead["attempts"], receiver.got().len()), (&json!(3), 3));
    world.finish().await;
}

#[tokio::test]
async fn gone_disables_the_subscription_with_a_log_entry() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::Answer(410)).await;
    let webhook = subscribe(&world, &receiver, "standard").await;
    test(&world, &webhook).await;
    let dead = until_newest(&world, &webhook, "dead_letter").await;
    assert_eq!((&dead["attempts"], &dead["response_code"]), (&json!(1), &json!(410)));
    eventually(seconds(10), async || world.admin.get(&path(&webhook)).await.expect(200)["enabled"] == false)
        .await;
    let entry = eventually_some(seconds(10), async || {
        let page = world.admin.get("/api/v1/logging?source=webhooks").await.expect(200);
        let entries = page["data"].as_array()?.clone();
        entries.into_iter().find(|entry| entry["content"].as_str().unwrap().contains("disabled"))
    });
    let entry = entry.await;
    assert_eq!(entry["type"], "error");
    assert!(entry["content"].as_str().unwrap().contains("410"), "{entry}");
    // An admin may enable it again.
    receiver.behave(Behaviour::Accept);
    world.admin.put(&path(&webhook), json!({"enabled": true})).await.expect(200);
    test(&world, &webhook).await;
    until_newest(&world, &webhook, "delivered").await;
    world.finish().await;
}

#[tokio::test]
async fn gone_is_a_failure_like_others_by_default() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::Answer(410)).await;
    let webhook = subscribe(&world, &receiver, "default").await;
    test(&world, &webhook).await;
    let dead = until_newest(&world, &webhook, "dead_letter").await;
    assert_eq!(dead["attempts"], 3);
    assert_eq!(world.admin.get(&path(&webhook)).await.expect(200)["enabled"], true);
    world.finish().await;
}
