//! Queries of lists of deliveries.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{
        CallbackDelivery, DeliveryBatch, DeliveryBatchEvent, DeliveryStatus, LineKind, MessageDelivery,
    },
    kernel::{AlarmId, ContactId, DeliveryId, WebhookId},
};
use signalbox_event_store::read_at;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use super::DeliveryRow;
use crate::{
    Word,
    page::{Listed, Order, Page, Sorting, and_eq, and_within, list},
};

/// Which deliveries are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct DeliveryFilter {
    /// Status word.
    pub status: Option<&'static str>,
    /// Type of the event.
    pub event_type: Option<String>,
    /// Queued at or after.
    pub from: Option<DateTime<Utc>>,
    /// Queued before.
    pub to: Option<DateTime<Utc>>,
}

/// The delivery `id` to `webhook`, which is a subscription or another receiver.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn delivery(
    pool: &PgPool,
    webhook: WebhookId,
    id: DeliveryId,
) -> Result<Option<DeliveryRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.deliveries WHERE webhook_id = $1 AND id = $2")
        .bind(webhook)
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// Request bodies of deliveries.
#[derive(Debug, Default)]
pub struct Bodies {
    of: HashMap<DeliveryId, String>,
    /// Why events cannot be read, by position.
    unreadable: HashMap<i64, String>,
}

impl Bodies {
    /// Of the deliveries that were queued at `positions` of the log, in ascending order. An event that cannot be read hides no
    /// other one.
    ///
    /// # Errors
    /// [`BodyError::Database`].
    #[boxed]
    pub async fn at(pool: &PgPool, positions: &[i64]) -> Result<Self, BodyError> {
        let slice = read_at(pool, positions).await?;
        let unreadable = slice.unreadable.into_iter().map(|event| (event.key.position, event.error));
        let mut bodies = Self { of: HashMap::new(), unreadable: unreadable.collect() };
        for recorded in &slice.events {
            match recorded.decode::<DeliveryBatch>() {
                Ok(DeliveryBatchEvent::DeliveriesQueued { deliveries, .. }) => {
                    bodies.of.extend(deliveries.into_iter().map(|new| (new.id, new.body)));
                }
                Ok(
                    DeliveryBatchEvent::CallbackQueued(CallbackDelivery { delivery, .. })
                    | DeliveryBatchEvent::MessageQueued(MessageDelivery { delivery, .. }),
                ) => {
                    bodies.of.insert(delivery.id, delivery.body);
                }
                Ok(_) => {}
                Err(error) => {
                    bodies.unreadable.insert(recorded.position, error.to_string());
                }
            }
        }
        Ok(bodies)
    }

    /// The request body of delivery `id`, which was queued at `position`, byte for byte.
    ///
    /// # Errors
    /// [`BodyError::Unreadable`] and [`BodyError::Missing`].
    pub fn take(&mut self, id: DeliveryId, position: i64) -> Result<String, BodyError> {
        self.of.remove(&id).ok_or_else(|| match self.unreadable.get(&position) {
            Some(error) => BodyError::Unreadable(error.clone()),
            None => BodyError::Missing(id),
        })
    }
}

/// Reasons why a delivery's body cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The log does not answer.
    #[error("the log cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// The event that queued the delivery cannot be read by this program.
    #[error("what is posted cannot be read: {0}")]
    Unreadable(String),
    /// The log and the read model disagree.
    #[error(
        "the log does not say what delivery {0} posts, where the read model says that it was queued; rebuild the read models"
    )]
    Missing(DeliveryId),
}

impl Listed for DeliveryRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "created_at"), &[], "id");
}

/// A page of the deliveries to `webhook`, which is a subscription or another receiver, and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn deliveries(
    pool: &PgPool,
    webhook: WebhookId,
    filter: &DeliveryFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<DeliveryRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.deliveries WHERE webhook_id = ").push_bind(webhook);
        and_eq(query, "status", filter.status);
        and_eq(query, "event_type", filter.event_type.as_deref());
        and_within(query, "created_at", filter.from, filter.to);
    })
    .await
}

/// A message about an alarm.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct AlarmMessageRow {
    /// The delivery, and its batch, which has the id of the message.
    pub id: DeliveryId,
    pub batch_id: Uuid,
    pub alarm_id: AlarmId,
    pub contact_id: ContactId,
    pub kind: Word<LineKind>,
    pub status: Word<DeliveryStatus>,
    pub attempts: i32,
    /// When it was delivered or given up.
    pub ended_at: Option<DateTime<Utc>>,
    pub response_code: Option<i32>,
    pub last_error: Option<String>,
}

impl AlarmMessageRow {
    /// Takes the state of the delivery `then`, which is an earlier one.
    pub fn become_as(&mut self, then: &DeliveryRow) {
        self.status.clone_from(&then.status);
        self.last_error.clone_from(&then.last_error);
        self.response_code = then.response_code;
        (self.attempts, self.ended_at) = (then.attempts, then.ended_at);
    }
}

/// The newest `most` messages about each of `alarms` that were queued at position `until` or before, oldest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn messages_about(
    pool: &PgPool,
    alarms: &[AlarmId],
    until: Option<i64>,
    most: i64,
) -> Result<Vec<AlarmMessageRow>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, batch_id, alarm_id, contact_id, kind, status, attempts, ended_at, response_code, last_error
           FROM (SELECT d.id, d.event_id AS batch_id, about.alarm_id, d.webhook_id AS contact_id, about.kind, d.status, d.attempts, d.ended_at, d.response_code,
                        d.last_error, d.position, row_number() OVER (PARTITION BY about.alarm_id ORDER BY d.position DESC) AS age
                   FROM read.deliveries d CROSS JOIN LATERAL unnest(d.alarm_ids, d.alarm_kinds) AS about (alarm_id, kind)
                  WHERE d.alarm_ids && $1 AND about.alarm_id = ANY($1) AND ($2::bigint IS NULL OR d.position <= $2)) found
          WHERE age <= $3 ORDER BY alarm_id, position",
    )
    .bind(alarms)
    .bind(until)
    .bind(most)
    .fetch_all(pool)
    .await
}

/// Dead deliveries to the subscription `webhook` that were given up at or after `since`, as batch and delivery,
/// oldest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn dead_since(
    pool: &PgPool,
    webhook: WebhookId,
    since: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(Uuid, DeliveryId)>, sqlx::Error> {
    sqlx::query_as(
        "SELECT consignment_id, id FROM read.deliveries
          WHERE webhook_id = $1 AND status = 'dead_letter' AND ended_at >= $2 ORDER BY ended_at, id LIMIT $3",
    )
    .bind(webhook)
    .bind(since)
    .bind(limit)
    .fetch_all(pool)
    .await
}
