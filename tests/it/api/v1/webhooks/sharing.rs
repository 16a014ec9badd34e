//! More requests at once than one process makes.

use futures::future::join_all;
use serde_json::{Value, json};

use super::{WEBHOOKS, deliveries, path};
use crate::harness::{Behaviour, Receiver, World, eventually, seconds};

const SUBSCRIPTIONS: usize = 5;
const EACH: usize = 8;

async fn subscribe_and_test(world: &World, receiver: &Receiver, number: usize) -> Value {
    let body = json!({"url": receiver.url_of(&number.to_string()), "events": ["experiment.started"]});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    let test = format!("{}/test", path(&webhook));
    for tested in join_all((0..EACH).map(|_| world.admin.post(&test, json!({})))).await {
        tested.expect(201);
    }
    webhook
}

#[tokio::test]
async fn the_limits_hold_for_all_processes_together() {
    let mut world = World::with(|config| {
        config.webhooks.concurrent_requests = 14;
        config.webhooks.concurrent_per_subscription = 4;
    })
    .await;
    world.another_process().await.work().await;
    let receiver = Receiver::with(None, Behaviour::Hold).await;
    let webhooks = (0..SUBSCRIPTIONS).map(|number| subscribe_and_test(&world, &receiver, number));
    let webhooks: Vec<_> = join_all(webhooks).await;
    receiver.until_held(14).await;
    receiver.behave(Behaviour::Accept);
    for webhook in &webhooks {
        eventually(seconds(40), async || deliveries(&world, webhook, "status=delivered").await.len() == EACH)
            .await;
    }
    assert_eq!(receiver.most_held(), 14);
    let mut of_each = std::collections::HashMap::<String, usize>::new();
    for got in receiver.got() {
        *of_each.entry(got.header("x-webhook-id").to_owned()).or_default() += 1;
    }
    assert_eq!(of_each.len(), SUBSCRIPTIONS * EACH);
    eventually(seconds(20), async || {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM ops.webhook_slots WHERE until > now()")
            .fetch_one(&world.servers.pool)
            .await
            .unwrap();
        left == 0
    })
    .await;
    world.finish().await;
}

#[tokio::test]
async fn one_subscription_gets_as_many_requests_as_it_may_have() {
    let world = World::with(|config| {
        config.webhooks.concurrent_requests = 20;
        config.webhooks.concurrent_per_subscription = 6;
    })
    .await;
    let receiver = Receiver::with(None, Behaviour::Hold).await;
    let webhook = subscribe_and_test(&world, &receiver, 0).await;
    receiver.until_held(6).await;
    receiver.behave(Behaviour::Accept);
    eventually(seconds(40), async || deliveries(&world, &webhook, "status=delivered").await.len() == EACH)
        .await;
    assert_eq!(receiver.most_held(), 6);
    world.finish().await;
}
