//! Receivers that waste the time of the service, beside one that does not.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{deliveries, path, subscribe, until_newest};
use crate::harness::{Behaviour, Receiver, World, eventually_some, seconds};

async fn test(world: &World, webhook: &Value) {
    world.admin.post(&format!("{}/test", path(webhook)), json!({})).await.expect(201);
}

#[tokio::test]
async fn receivers_that_drip_are_given_up_and_delay_no_other() {
    let world = World::start().await;
    let good = Receiver::start().await;
    let webhook = subscribe(&world, &good, &["log.entry"]).await;
    let mut hostile = Vec::new();
    for behaviour in [Behaviour::Drip, Behaviour::Interim, Behaviour::Hold] {
        let receiver = Receiver::with(None, behaviour).await;
        let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
        for _ in 0..5 {
            test(&world, &webhook).await;
        }
        receiver.until_got(1).await;
        hostile.push((receiver, webhook));
    }
    // All of them hold their requests.
    let begun = Instant::now();
    for count in 1..=5 {
        test(&world, &webhook).await;
        good.until_got(count).await;
    }
    assert!(
        good.got().iter().all(|got| got.at < begun + Duration::from_secs(9)),
        "they waited for the others"
    );
    for (receiver, webhook) in &hostile {
        let failed = eventually_some(seconds(40), async || {
            let failed = deliveries(&world, webhook, "status=failed").await;
            failed.into_iter().next()
        })
        .await;
        assert_eq!(failed["last_error"], "Timeout", "{failed}");
        receiver.behave(Behaviour::Accept);
        // Its connections are closed.
        receiver.until_held(0).await;
    }
    world.finish().await;
}

#[tokio::test]
async fn a_body_that_drips_is_not_waited_for() {
    let world = World::start().await;
    let receiver = Receiver::with(None, Behaviour::DripBody).await;
    let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
    test(&world, &webhook).await;
    let delivered = until_newest(&world, &webhook, "delivered").await;
    assert_eq!((&delivered["attempts"], receiver.got().len()), (&json!(1), 1));
    receiver.until_held(0).await;
    world.finish().await;
}
