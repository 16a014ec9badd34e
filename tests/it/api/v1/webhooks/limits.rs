//! How many requests are in progress.

use futures::future::join_all;
use serde_json::{Value, json};

use super::{WEBHOOKS, deliveries, path};
use crate::harness::{Behaviour, Receiver, World, eventually, seconds};

const EACH: usize = 5;

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
async fn ten_requests_are_under_way_at_most_and_three_of_one_subscription() {
    let mut world = World::start().await;
    // Another process that would send too.
    world.another_process().await.work().await;
    let receivers =
        [Receiver::with(None, Behaviour::Hold).await, Receiver::with(None, Behaviour::Hold).await];
    let one = subscribe_and_test(&world, &receivers[0], 0).await;
    receivers[0].until_held(3).await;
    let others = (1..=4).map(|number| subscribe_and_test(&world, &receivers[1], number));
    // At once, because requests that are held end after ten seconds.
    let webhooks: Vec<_> = join_all(others).await.into_iter().chain([one]).collect();
    receivers[1].until_held(7).await;
    // Waiting deliveries are not lost while others proceed.
    receivers.iter().for_each(|receiver| receiver.behave(Behaviour::Accept));
    for webhook in &webhooks {
        eventually(seconds(40), async || deliveries(&world, webhook, "status=delivered").await.len() == EACH)
            .await;
    }
    assert_eq!((receivers[0].most_held(), receivers[1].most_held()), (3, 7));
    world.finish().await;
}
