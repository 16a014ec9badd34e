//! A worker that crashes in the middle of a request.

use chrono::TimeDelta;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_domain::{
    automation::{DeliveryBatch, DeliveryBatchCommand, NewDelivery, RetryPolicy},
    kernel::{DeliveryId, WebhookId},
};
use signalbox_test_support::metadata;
use signalbox_workers::{Parts, WebhookDelivery, Worker};
use uuid::Uuid;

use super::{WEBHOOKS, path, subscribe, until_newest};
use crate::harness::{Receiver, World};

/// The body of an event about an experiment.
fn started(event: Uuid) -> String {
    json!({"type": "experiment.started", "time": "2026-11-21T12:00:00+00:00", "id": event,
        "experiment_name": "e", "experiment_id": Uuid::nil()})
    .to_string()
}

#[tokio::test]
async fn an_attempt_of_a_crashed_worker_is_repeated_under_its_number() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    let (receiver, witness) = (Receiver::start().await, Receiver::start().await);
    let body = json!({"url": receiver.url(), "events": ["experiment.started"], "enabled": false});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    let id: Uuid = webhook["public_id"].as_str().unwrap().parse().unwrap();
    // The crashed worker's commands. The subscription is disabled, so that the running worker does not interfere.
    let (batch, delivery, claim) = (clock.new_id(), DeliveryId(clock.new_id()), clock.new_id());
    let event = NewDelivery {
        id: delivery,
        event_id: delivery.0,
        event_type: "experiment.started".to_owned(),
        body: started(delivery.0),
    };
    let queue = DeliveryBatchCommand::Queue { webhook: WebhookId(id), deliveries: vec![event] };
    let begin = DeliveryBatchCommand::Begin { claim, at: clock.now(), ids: vec![delivery] };
    for command in [queue, begin] {
        world.servers.bus.send::<DeliveryBatch>(batch, None, &metadata(), &command).await.unwrap();
    }
    world.admin.put(&path(&webhook), json!({"enabled": true})).await.expect(200);
    // Another one is served meanwhile, several times over.
    let other = subscribe(&world, &witness, &["experiment.started"]).await;
    for count in 1..=3 {
        world.admin.post(&format!("{}/test", path(&other)), json!({})).await.expect(201);
        witness.until_got(count).await;
        until_newest(&world, &other, "delivered").await;
    }
    assert_eq!(receiver.got().len(), 0, "the claim is in force");
    clock.advance(TimeDelta::seconds(16));
    let got = receiver.until_got(1).await;
    assert_eq!((got[0].refused, got[0].header("x-webhook-attempt")), (None, "1"));
    let delivered = until_newest(&world, &webhook, "delivered").await;
    assert_eq!(delivered["attempts"], 1);
    // A late result of the crashed worker is refused.
    let late = DeliveryBatchCommand::Record { claim, results: Vec::new(), retry: RetryPolicy::Default };
    let said = world.servers.bus.send::<DeliveryBatch>(batch, None, &metadata(), &late).await;
    assert_eq!(said.unwrap_err().code, "claim_lapsed");
    world.finish().await;
}

#[tokio::test]
async fn a_claim_is_in_force_for_a_worker_whose_clock_is_ahead() {
    let world = World::without_workers(Clock::system(), |_| {}).await;
    let (receiver, witness) = (Receiver::start().await, Receiver::start().await);
    for (receiver, is_claimed) in [(&receiver, true), (&witness, false)] {
        let body = json!({"url": receiver.url(), "events": ["experiment.started"]});
        let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
        let webhook = WebhookId(webhook["public_id"].as_str().unwrap().parse().unwrap());
        let [batch, delivery, claim] = [(); 3].map(|()| world.clock.new_id());
        let event = NewDelivery {
            id: DeliveryId(delivery),
            event_id: delivery,
            event_type: "experiment.started".to_owned(),
            body: started(delivery),
        };
        let queue = DeliveryBatchCommand::Queue { webhook, deliveries: vec![event] };
        let begin =
            DeliveryBatchCommand::Begin { claim, at: world.clock.now(), ids: vec![DeliveryId(delivery)] };
        for command in std::iter::once(queue).chain(is_claimed.then_some(begin)) {
            world.servers.bus.send::<DeliveryBatch>(batch, None, &metadata(), &command).await.unwrap();
        }
    }
    world.read_models.show_all().await;
    let Parts { mut context, senders, config, .. } = world.worker_parts().await;
    context.clock = Clock::shifted(TimeDelta::hours(1));
    let worker = WebhookDelivery::new(senders, &config.webhooks);
    worker.step(&context).await.unwrap();
    // The time that it signs is PostgreSQL's.
    assert_eq!(witness.until_got(1).await[0].refused, None);
    assert_eq!(world.count_events("attempts_begun").await, 2, "the claim and the witness");
    assert_eq!(receiver.got().len(), 0);
    world.finish_with_mail().await;
}
