//! How many requests are under way.

use serde_json::{Value, json};

use super::{WEBHOOKS, deliveries, path};
use crate::harness::{Manner, Receiver, World, eventually, seconds};

const EACH: usize = 5;

async fn subscribe_and_test(world: &World, receiver: &Receiver, number: usize) -> Value {
    let body = json!({"url": receiver.url_of(&number.to_string()), "events": ["experiment.started"]});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    for _ in 0..EACH {
        world.admin.post(&format!("{}/test", path(&webhook)), json!({})).await.expect(201);
    }
    webhook
}

#[tokio::test]
async fn ten_requests_are_under_way_at_most_and_three_of_one_subscription() {
    let mut world = World::start().await;
    // Another process that would send too.
    world.another_process().await.work().await;
    let receivers = [Receiver::with(None, Manner::Hold).await, Receiver::with(None, Manner::Hold).await];
    let one = subscribe_and_test(&world, &receivers[0], 0).await;
    receivers[0].until_held(3).await;
    let mut webhooks = vec![one];
    for number in 1..=4 {
        webhooks.push(subscribe_and_test(&world, &receivers[1], number).await);
    }
    receivers[1].until_held(7).await;
    // What waits is not lost when the others go on.
    receivers.iter().for_each(|receiver| receiver.behave(Manner::Accept));
    for webhook in &webhooks {
        eventually(seconds(40), async || deliveries(&world, webhook, "status=delivered").await.len() == EACH)
            .await;
    }
    assert_eq!((receivers[0].most_held(), receivers[1].most_held()), (3, 7));
    world.finish().await;
}
