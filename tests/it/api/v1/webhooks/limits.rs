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

#[tokio::test]
async fn a_subscription_that_was_not_served_yet_precedes_the_backlogs_of_others() {
    const MANY: usize = 20;
    let world = World::start().await;
    let (many, late) = (Receiver::with(None, Behaviour::Hold).await, Receiver::lenient().await);
    join_all((0..MANY).map(|number| subscribe_and_test(&world, &many, number))).await;
    many.until_held(10).await;
    subscribe_and_test(&world, &late, MANY).await;
    many.behave(Behaviour::Accept);
    let first = late.until_got(1).await[0].at;
    let others = many.until_got(MANY * EACH).await;
    // Ten were held, and the other 16 had not been served yet, either.
    let before = others.iter().filter(|got| got.at < first).count();
    assert!(before < MANY * EACH / 2, "{before} requests for others were sent first");
    world.finish().await;
}

#[tokio::test]
async fn subscriptions_that_fail_leave_others_a_way() {
    let world = World::start().await;
    let (hanging, well) = (Receiver::with(None, Behaviour::Hold).await, Receiver::lenient().await);
    let failing = join_all((0..12).map(|number| {
        let body = json!({"url": hanging.url_of(&number.to_string()), "events": ["experiment.started"]});
        world.admin.post(WEBHOOKS, body)
    }));
    let failing: Vec<_> = failing.await.into_iter().map(|made| made.expect(201)).collect();
    let fail = "UPDATE read.webhooks SET failing_since = now()";
    sqlx::query(fail).execute(&world.servers.pool).await.unwrap();
    let tests = failing.iter().map(|webhook| format!("{}/test", path(webhook)));
    for test in tests {
        world.admin.post(&test, json!({})).await.expect(201);
    }
    hanging.until_held(8).await;
    subscribe_and_test(&world, &well, 12).await;
    well.until_got(EACH).await;
    assert_eq!(hanging.most_held(), 8);
    world.finish().await;
}
