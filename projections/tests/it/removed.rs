//! Deleted webhooks with more deliveries than one statement removes.

use signalbox_domain::automation::{
    EventType, NewWebhook, RetryPolicy, Webhook, WebhookCommand, WebhookSpec,
};
use signalbox_projections::automation::{remove_deliveries, webhooks::webhook};
use sqlx::PgPool;
use uuid::Uuid;

use crate::world::{OWNER, World};

async fn add_deliveries(pool: &PgPool, webhook: Uuid, count: i32) {
    sqlx::query(
        "INSERT INTO read.deliveries (id, consignment_id, webhook_id, event_id, event_type, status, round, attempts,
                history, is_callback, position, created_at, updated_at)
         SELECT gen_random_uuid(), $1, $1, $1, 'sensor.reading', 'delivered', 1, 1, '[]', false, 1, now(), now()
           FROM generate_series(1, $2)",
    )
    .bind(webhook)
    .bind(count)
    .execute(pool)
    .await
    .unwrap();
}

async fn rows(pool: &PgPool, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM read.{table}");
    sqlx::query_scalar(&sql).fetch_one(pool).await.unwrap()
}

#[tokio::test]
async fn a_deleted_webhook_is_gone_before_its_deliveries_are() {
    let world = World::start().await;
    let (pool, id) = (world.pool(), world.clock.new_id());
    let spec = WebhookSpec {
        url: "https://example.org/hook".to_owned(),
        sealed_secret: None,
        key: None,
        previous: None,
        events: vec![EventType::ExperimentStarted],
        enabled: true,
        retry: RetryPolicy::Default,
        filters: Box::default(),
    };
    world.writer.run::<Webhook>(id, WebhookCommand::Create(NewWebhook { owner: OWNER, spec })).await;
    world.fold().await;
    add_deliveries(pool, id, 25_000).await;
    add_deliveries(pool, Uuid::nil(), 1).await;
    world.writer.run::<Webhook>(id, WebhookCommand::Delete).await;
    world.fold().await;
    assert!(webhook(pool, id.into()).await.unwrap().is_none());
    assert_eq!(rows(pool, "deliveries").await, 15_001);
    assert!(remove_deliveries(pool).await.unwrap());
    assert_eq!((rows(pool, "deliveries").await, rows(pool, "removed_webhooks").await), (5_001, 1));
    assert!(remove_deliveries(pool).await.unwrap());
    assert_eq!((rows(pool, "deliveries").await, rows(pool, "removed_webhooks").await), (1, 0));
    assert!(!remove_deliveries(pool).await.unwrap());
}

#[tokio::test]
async fn a_deleted_webhook_with_few_deliveries_leaves_nothing() {
    let world = World::start().await;
    crate::history_webhooks::webhooks(&world.writer, 2).await;
    world.fold().await;
    for table in ["webhooks", "deliveries", "consignments", "removed_webhooks"] {
        assert_eq!(rows(world.pool(), table).await, 0, "{table}");
    }
}
