//! A worker that dies in the middle of a request.

use chrono::TimeDelta;
use serde_json::json;
use signalbox_clock::Clock;
use signalbox_domain::{
    automation::{Consignment, ConsignmentCommand, NewDelivery},
    kernel::{DeliveryId, WebhookId},
};
use signalbox_test_support::metadata;
use uuid::Uuid;

use super::{WEBHOOKS, path, subscribe, until_newest};
use crate::harness::{Receiver, World};

#[tokio::test]
async fn an_attempt_of_a_worker_that_died_is_made_again_under_its_number_when_its_claim_lapses() {
    let clock = Clock::manual(Clock::system().now());
    let world = World::at(clock.clone(), |_| {}).await;
    let (receiver, witness) = (Receiver::start().await, Receiver::start().await);
    let body = json!({"url": receiver.url(), "events": ["experiment.started"], "enabled": false});
    let webhook = world.admin.post(WEBHOOKS, body).await.expect(201);
    let id: Uuid = webhook["public_id"].as_str().unwrap().parse().unwrap();
    // What the worker did before it died: it is disabled, so that the living one does not come first.
    let (consignment, delivery, claim) = (clock.new_id(), DeliveryId(clock.new_id()), clock.new_id());
    let event = NewDelivery {
        id: delivery,
        event_id: delivery.0,
        event_type: "experiment.started".to_owned(),
        body: json!({"type": "experiment.started", "time": "2026-11-21T12:00:00+00:00"}).to_string(),
    };
    let queue = ConsignmentCommand::Queue { webhook: WebhookId(id), deliveries: vec![event] };
    let begin = ConsignmentCommand::Begin { claim, at: clock.now(), ids: vec![delivery] };
    for command in [queue, begin] {
        world.servers.bus.send::<Consignment>(consignment, None, &metadata(), &command).await.unwrap();
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
    // What the dead one might still say comes too late.
    let late = ConsignmentCommand::Record { claim, results: Vec::new() };
    let said = world.servers.bus.send::<Consignment>(consignment, None, &metadata(), &late).await;
    assert_eq!(said.unwrap_err().code, "claim_lapsed");
    world.finish().await;
}
