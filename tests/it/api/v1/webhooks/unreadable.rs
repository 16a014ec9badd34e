//! Deliveries whose queueing in the log cannot be read.

use serde_json::{Value, json};
use signalbox_domain::{
    automation::{DeliveryBatch, DeliveryBatchCommand, NewDelivery},
    kernel::{DeliveryId, WebhookId},
};
use signalbox_test_support::metadata;
use sqlx::{Executor, PgPool};
use uuid::Uuid;

use super::{WEBHOOKS, deliveries, path, start_experiment, stop_experiment, subscribe, until_newest};
use crate::harness::{Receiver, World, eventually, seconds, signalbox};

const ITEMS: &str = "worker.webhook-delivery.items";

/// A subscription of `receiver` that is disabled, so that nothing is sent yet.
async fn disabled(world: &World, receiver: &Receiver, name: &str) -> Value {
    let url = format!("{}?{name}", receiver.url());
    let body = json!({"url": url, "events": ["experiment.started"], "enabled": false});
    world.admin.post(WEBHOOKS, body).await.expect(201)
}

/// Queues a delivery in `batch` for `webhook`.
async fn queue(world: &World, batch: Uuid, webhook: &Value, text: &str) {
    let id = world.clock.new_id();
    let delivery = NewDelivery {
        id: DeliveryId(id),
        event_id: id,
        event_type: "experiment.started".to_owned(),
        body: json!({"type": "experiment.started", "text": text}).to_string(),
    };
    let webhook = WebhookId(webhook["public_id"].as_str().unwrap().parse().unwrap());
    let command = DeliveryBatchCommand::Queue { webhook, deliveries: vec![delivery] };
    world.servers.bus.send::<DeliveryBatch>(batch, None, &metadata(), &command).await.unwrap();
}

/// Overwrites the first event of `batch`; returns what it was.
async fn overwrite(pool: &PgPool, batch: Uuid, payload: &str) -> String {
    overwrite_event(pool, ("delivery", &batch.to_string(), 1), payload).await
}

/// Overwrites the event at a place of a stream; gives back what it was.
async fn overwrite_event(pool: &PgPool, (kind, id, sequence): (&str, &str, i64), payload: &str) -> String {
    let stream = format!("aggregate_type = '{kind}' AND aggregate_id = '{id}' AND sequence = {sequence}");
    let before = sqlx::query_scalar(&format!("SELECT payload::text FROM events WHERE {stream}"))
        .fetch_one(pool)
        .await
        .unwrap();
    let tampering = format!(
        "SET session_replication_role = replica;
         UPDATE events SET payload = '{payload}' WHERE {stream}; RESET session_replication_role"
    );
    pool.execute(tampering.as_str()).await.unwrap();
    before
}

async fn has_fault(pool: &PgPool) -> bool {
    signalbox_database::faults(pool).await.unwrap().iter().any(|fault| fault.part == ITEMS)
}

#[tokio::test]
async fn a_delivery_that_cannot_be_read_fails_alone_and_is_sent_when_it_can() {
    let world = World::start().await;
    let (pool, receiver, batch) = (&world.servers.pool, Receiver::start().await, world.clock.new_id());
    let webhook = disabled(&world, &receiver, "only").await;
    queue(&world, batch, &webhook, "unreadable").await;
    queue(&world, batch, &webhook, "readable").await;
    eventually(seconds(20), async || deliveries(&world, &webhook, "").await.len() == 2).await;
    let before = overwrite(pool, batch, "{}").await;
    world.admin.put(&path(&webhook), json!({"enabled": true})).await.expect(200);
    let got = receiver.until_got(1).await;
    assert_eq!(got[0].json()["text"], "readable");
    eventually(seconds(20), async || has_fault(pool).await).await;
    for (delivery, is_readable) in deliveries(&world, &webhook, "").await.iter().zip([true, false]) {
        let id = delivery["public_id"].as_str().unwrap();
        let shown = world.admin.get(&format!("{}/deliveries/{id}", path(&webhook))).await.expect(200);
        assert_eq!(shown["body"].is_string(), is_readable, "{shown}");
    }
    overwrite(pool, batch, &before).await;
    let is_unreadable = || receiver.got().iter().any(|got| got.json()["text"] == "unreadable");
    eventually(seconds(60), async || is_unreadable()).await;
    eventually(seconds(20), async || !has_fault(pool).await).await;
    world.finish().await;
}

#[tokio::test]
async fn deliveries_that_cannot_be_read_keep_no_other_subscription_waiting() {
    let world = World::start().await;
    let (pool, receiver) = (&world.servers.pool, Receiver::start().await);
    let mut stuck = Vec::new();
    // More than there are requests in progress at the same time.
    for place in 0..11 {
        let webhook = disabled(&world, &receiver, &place.to_string()).await;
        let batch = world.clock.new_id();
        queue(&world, batch, &webhook, "unreadable").await;
        eventually(seconds(20), async || deliveries(&world, &webhook, "").await.len() == 1).await;
        stuck.push((webhook, batch, overwrite(pool, batch, "{}").await));
    }
    for (webhook, ..) in &stuck {
        world.admin.put(&path(webhook), json!({"enabled": true})).await.expect(200);
    }
    eventually(seconds(20), async || has_fault(pool).await).await;
    let other = subscribe(&world, &receiver, &["experiment.started"]).await;
    world.admin.post(&format!("{}/test", path(&other)), json!({})).await.expect(201);
    until_newest(&world, &other, "delivered").await;
    assert_eq!(receiver.got().len(), 1);
    for (_, batch, before) in &stuck {
        overwrite(pool, *batch, before).await;
    }
    eventually(seconds(60), async || receiver.got().len() == 12).await;
    world.finish().await;
}

async fn waiting(pool: &PgPool, follower: &str) -> i64 {
    let count = "SELECT count(*) FROM read.poisonous_events WHERE projection LIKE $1";
    sqlx::query_scalar(count).bind(follower).fetch_one(pool).await.unwrap()
}

/// Appends an update of `webhook` that cannot be read.
async fn append_update(pool: &PgPool, webhook: &str) {
    let mut transaction = signalbox_database::begin(pool, "BEGIN").await.unwrap();
    let sql = "UPDATE log_head SET position = position + 1 WHERE log = 'events' RETURNING position";
    let position: i64 = sqlx::query_scalar(sql).fetch_one(&mut *transaction).await.unwrap();
    sqlx::query(
        "INSERT INTO events VALUES ($1, 'webhook', $2, 2, 'webhook_updated', '1', '{}', '{}', now())",
    )
    .bind(position)
    .bind(webhook)
    .execute(&mut *transaction)
    .await
    .unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn a_subscription_whose_event_is_read_after_all_receives_again() {
    let world = World::start().await;
    let (pool, receiver) = (&world.servers.pool, Receiver::start().await);
    let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
    let id = webhook["public_id"].as_str().unwrap();
    append_update(pool, id).await;
    let fan_out = "worker.webhook-fan-out";
    eventually(seconds(20), async || waiting(pool, fan_out).await == 1).await;
    eventually(seconds(20), async || waiting(pool, "automation").await == 1).await;
    let created: Value = sqlx::query_scalar(
        "SELECT payload FROM events WHERE aggregate_type = 'webhook' AND aggregate_id = $1 AND sequence = 1",
    )
    .bind(id)
    .fetch_one(pool)
    .await
    .unwrap();
    let mut spec = created.clone();
    spec.as_object_mut().unwrap().retain(|field, _| !["type", "owner"].contains(&field.as_str()));
    let updated = json!({"type": "webhook_updated", "from": spec, "to": spec});
    overwrite_event(pool, ("webhook", id, 2), &updated.to_string()).await;
    signalbox(&world.config, &["projections", "poison", "retry"]).await;
    eventually(seconds(20), async || waiting(pool, "%").await == 0).await;
    let experiment = start_experiment(&world, "heard").await;
    let got = receiver.until_got(1).await;
    assert_eq!(got[0].json()["experiment_name"], "heard");
    stop_experiment(&world, &experiment).await;
    world.finish().await;
}

#[tokio::test]
async fn a_replay_lists_what_it_cannot_read_and_sends_it_when_it_can() {
    let world = World::start().await;
    let (pool, receiver) = (&world.servers.pool, Receiver::start().await);
    let experiment = start_experiment(&world, "unreadable").await;
    let place = ("experiment", experiment.as_str(), 1);
    let before = overwrite_event(pool, place, "{}").await;
    let webhook = subscribe(&world, &receiver, &["experiment.started"]).await;
    let from = json!({"from": "2026-01-01T00:00:00Z"});
    world.admin.post(&format!("{}/replay", path(&webhook)), from).await.expect(202);
    let is_done = async || world.admin.get(&path(&webhook)).await.expect(200)["replaying"] == false;
    eventually(seconds(20), is_done).await;
    let replay = format!("worker.webhook-replay.{}", webhook["public_id"].as_str().unwrap());
    assert_eq!((waiting(pool, &replay).await, receiver.got().len()), (1, 0));
    overwrite_event(pool, place, &before).await;
    signalbox(&world.config, &["projections", "poison", "retry"]).await;
    let got = receiver.until_got(1).await;
    assert_eq!(got[0].json()["experiment_name"], "unreadable");
    eventually(seconds(20), async || waiting(pool, "%").await == 0).await;
    stop_experiment(&world, &experiment).await;
    world.finish().await;
}
