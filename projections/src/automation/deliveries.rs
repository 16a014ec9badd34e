//! Deliveries as rows, and the queries of their lists.

use signalbox_boxed::boxed;
use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::automation::{
    AttemptResult, CLAIM_SECONDS, CallbackDelivery, DeliveryBatch, DeliveryBatchEvent, Ended,
    MessageDelivery, NewDelivery, Requeued, Verdict,
};
use signalbox_event_store::{RecordedEvent, read_at};
use sqlx::{FromRow, PgPool, types::Json};
use uuid::Uuid;

use crate::{
    automation::{WebhookRow, failure_streaks::FailureStreaks},
    page::{Listed, Order, Page, Sorting, and_eq, and_within, list},
    table::{ReadRow, Table},
};

/// Attempts that a delivery remembers; earlier ones are in the log.
const REMEMBERED: usize = 30;

/// An event on its way to a subscription, or there.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct DeliveryRow {
    /// Key; it follows from subscription and event.
    pub id: Uuid,
    /// The aggregate that it belongs to.
    pub consignment_id: Uuid,
    pub webhook_id: Uuid,
    /// Names the event, in all its deliveries.
    pub event_id: Uuid,
    /// Type of the event.
    pub event_type: String,
    /// `pending`, `delivered`, `failed` or `dead_letter`.
    pub status: String,
    /// Counts from 1; each redelivery starts another round.
    pub round: i32,
    /// Attempts of this round that have ended.
    pub attempts: i32,
    /// The receiver's last answer.
    pub response_code: Option<i32>,
    /// Error of the last attempt; absent after a success.
    pub last_error: Option<String>,
    /// The newest attempts, oldest first.
    pub history: Json<Vec<Attempt>>,
    /// Due time of the next attempt; absent for a finished delivery.
    pub due_at: Option<DateTime<Utc>>,
    /// Whether the batch itself holds the address, instead of a subscription.
    pub is_callback: bool,
    /// The alarms of a message to a contact.
    pub alarm_ids: Option<Vec<Uuid>>,
    /// By alarm: `firing`, `cleared`, `fired_and_cleared`, `reminder` or `escalation`.
    pub alarm_kinds: Option<Vec<String>>,
    /// Position of its queueing in the log, where its body can be read, see [`Bodies`].
    pub position: i64,
    /// When it was queued.
    pub created_at: DateTime<Utc>,
    /// When it was delivered or given up.
    pub ended_at: Option<DateTime<Utc>>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

/// Result of one attempt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Which round.
    pub round: u32,
    /// Which attempt of the round.
    pub attempt: u32,
    #[serde(flatten)]
    pub result: AttemptResult,
}

/// Deliveries that are claimed together.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct DeliveryBatchRow {
    /// Key.
    pub id: Uuid,
    pub webhook_id: Uuid,
    /// Address of a callback.
    pub url: Option<String>,
    /// The signing secret, encrypted.
    pub sealed_secret: Option<String>,
    /// Whether the address of this machine itself is refused to it.
    pub no_loopback: bool,
    /// Current claims. An expired claim stays until the next one is made.
    pub claims: Json<Vec<ClaimEntry>>,
    /// When the newest claim was made.
    pub claimed_at: Option<DateTime<Utc>>,
}

/// A worker's claim.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimEntry {
    /// Its key.
    pub claim: Uuid,
    /// When it was made.
    pub at: DateTime<Utc>,
}

impl ReadRow for DeliveryRow {
    const TABLE: &'static str = "deliveries";

    fn id(&self) -> Uuid {
        self.id
    }
}

impl ReadRow for DeliveryBatchRow {
    const TABLE: &'static str = "consignments";

    fn id(&self) -> Uuid {
        self.id
    }
}

impl DeliveryRow {
    fn new(recorded: &RecordedEvent, webhook_id: Uuid, new: NewDelivery, is_callback: bool) -> Self {
        let at = recorded.recorded_at;
        Self {
            id: new.id.0,
            consignment_id: recorded.aggregate_id,
            webhook_id,
            event_id: new.event_id,
            event_type: new.event_type,
            status: "pending".to_owned(),
            round: 1,
            attempts: 0,
            response_code: None,
            last_error: None,
            history: Json(Vec::new()),
            due_at: Some(at),
            is_callback,
            alarm_ids: None,
            alarm_kinds: None,
            position: recorded.position,
            created_at: at,
            ended_at: None,
            updated_at: at,
        }
    }
}

impl DeliveryBatchRow {
    fn new(id: Uuid, webhook_id: Uuid) -> Self {
        Self {
            id,
            webhook_id,
            url: None,
            sealed_secret: None,
            no_loopback: false,
            claims: Json(Vec::new()),
            claimed_at: None,
        }
    }
}

/// The tables that the events of a delivery batch change.
pub(super) struct Changed<'r> {
    pub(super) webhooks: &'r mut Table<WebhookRow>,
    pub(super) deliveries: &'r mut Table<DeliveryRow>,
    pub(super) batches: &'r mut Table<DeliveryBatchRow>,
    pub(super) failure_streaks: &'r mut FailureStreaks,
}

/// The deliveries that `event` changes, and were there before.
pub(super) fn changed_deliveries(event: &DeliveryBatchEvent) -> Vec<Uuid> {
    match event {
        DeliveryBatchEvent::DeliveriesQueued { .. }
        | DeliveryBatchEvent::CallbackQueued(_)
        | DeliveryBatchEvent::MessageQueued(_)
        | DeliveryBatchEvent::AttemptsBegun { .. } => Vec::new(),
        DeliveryBatchEvent::AttemptsEnded { attempts, .. } => {
            attempts.iter().map(|ended| ended.result.id.0).collect()
        }
        DeliveryBatchEvent::DeliveriesRequeued { deliveries, .. } => {
            deliveries.iter().map(|requeued| requeued.id.0).collect()
        }
    }
}

/// The subscription whose health `event` changes.
pub(super) fn changed_webhook(event: &DeliveryBatchEvent) -> Option<Uuid> {
    match event {
        DeliveryBatchEvent::AttemptsEnded { webhook, .. } => Some(webhook.0),
        _ => None,
    }
}

pub(super) fn fold(rows: &mut Changed<'_>, recorded: &RecordedEvent, event: DeliveryBatchEvent) {
    match event {
        DeliveryBatchEvent::DeliveriesQueued { webhook, deliveries } => {
            rows.queue(recorded, webhook.0, deliveries)
        }
        DeliveryBatchEvent::CallbackQueued(callback) => rows.queue_callback(recorded, callback),
        DeliveryBatchEvent::MessageQueued(message) => rows.queue_message(recorded, message),
        DeliveryBatchEvent::AttemptsBegun { claim, at, .. } => {
            rows.begin(recorded.aggregate_id, ClaimEntry { claim, at })
        }
        DeliveryBatchEvent::AttemptsEnded { claim, webhook, attempts, .. } => {
            rows.release(recorded.aggregate_id, claim);
            for ended in attempts {
                rows.end(recorded, webhook.0, ended);
            }
        }
        DeliveryBatchEvent::DeliveriesRequeued { at, deliveries } => {
            for requeued in deliveries {
                rows.requeue(recorded, at, &requeued);
            }
        }
    }
}

impl Changed<'_> {
    fn queue(&mut self, recorded: &RecordedEvent, webhook_id: Uuid, deliveries: Vec<NewDelivery>) {
        if recorded.sequence == 1 {
            self.batches.put(DeliveryBatchRow::new(recorded.aggregate_id, webhook_id));
        }
        for delivery in deliveries {
            self.deliveries.put(DeliveryRow::new(recorded, webhook_id, delivery, false));
        }
    }

    fn queue_callback(&mut self, recorded: &RecordedEvent, callback: CallbackDelivery) {
        let CallbackDelivery { receiver, url, sealed_secret, no_loopback, delivery } = callback;
        let id = recorded.aggregate_id;
        if recorded.sequence == 1 {
            self.batches.put(DeliveryBatchRow::new(id, receiver.0));
        }
        if let Some(row) = self.batches.change(id) {
            (row.url, row.sealed_secret) = (Some(url), Some(sealed_secret));
            row.no_loopback = no_loopback;
        }
        self.deliveries.put(DeliveryRow::new(recorded, receiver.0, delivery, true));
    }

    fn queue_message(&mut self, recorded: &RecordedEvent, message: MessageDelivery) {
        let (contact, alarms) = (message.contact.0, message.alarms);
        if recorded.sequence == 1 {
            self.batches.put(DeliveryBatchRow::new(recorded.aggregate_id, contact));
        }
        let mut row = DeliveryRow::new(recorded, contact, message.delivery, false);
        if !alarms.is_empty() {
            row.alarm_ids = Some(alarms.iter().map(|line| line.alarm).collect());
            row.alarm_kinds = Some(alarms.iter().map(|line| line.kind.as_str().to_owned()).collect());
        }
        self.deliveries.put(row);
    }

    fn begin(&mut self, batch: Uuid, made: ClaimEntry) {
        let Some(row) = self.batches.change(batch) else { return };
        row.claims.retain(|claim| claim.at + TimeDelta::seconds(CLAIM_SECONDS) > made.at);
        row.claimed_at = Some(made.at);
        row.claims.push(made);
    }

    fn release(&mut self, batch: Uuid, ended: Uuid) {
        let Some(row) = self.batches.change(batch) else { return };
        row.claims.retain(|claim| claim.claim != ended);
        row.claimed_at = row.claims.iter().map(|claim| claim.at).max();
    }

    fn end(&mut self, recorded: &RecordedEvent, webhook: Uuid, ended: Ended) {
        let Ended { round, attempt, result, verdict } = ended;
        let ended_at = result.started_at + TimeDelta::milliseconds(result.duration_ms.into());
        self.note_health(webhook, result.error.is_none(), ended_at, recorded.position);
        let Some(row) = self.deliveries.change(result.id.0) else { return };
        let counted = match verdict {
            Verdict::Retry { postponed: true, .. } => attempt.saturating_sub(1),
            _ => attempt,
        };
        row.attempts = i32::try_from(counted).unwrap_or(i32::MAX);
        row.response_code = result.status.map(i32::from);
        row.last_error.clone_from(&result.error);
        row.updated_at = recorded.recorded_at;
        let (status, due_at) = match verdict {
            Verdict::Delivered => ("delivered", None),
            Verdict::Retry { due_at, .. } => ("failed", Some(due_at)),
            Verdict::DeadLetter => ("dead_letter", None),
        };
        row.status = status.to_owned();
        row.due_at = due_at;
        row.ended_at = due_at.is_none().then_some(ended_at);
        let history = &mut row.history;
        history.push(Attempt { round, attempt, result });
        let forgotten = history.len().saturating_sub(REMEMBERED);
        history.drain(..forgotten);
    }

    fn note_health(&mut self, webhook: Uuid, succeeded: bool, at: DateTime<Utc>, position: i64) {
        if self.webhooks.get(webhook).is_none_or(|row| row.failing_since.is_none() == succeeded) {
            return;
        }
        if let Some(row) = self.webhooks.change(webhook) {
            row.failing_since = (!succeeded).then_some(at);
            self.failure_streaks.note(webhook, position, row.failing_since);
        }
    }

    fn requeue(&mut self, recorded: &RecordedEvent, at: DateTime<Utc>, requeued: &Requeued) {
        let Some(row) = self.deliveries.change(requeued.id.0) else { return };
        row.round = i32::try_from(requeued.round).unwrap_or(i32::MAX);
        row.attempts = 0;
        row.status = "pending".to_owned();
        row.due_at = Some(at);
        row.ended_at = None;
        row.updated_at = recorded.recorded_at;
    }
}

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

/// The delivery `id` to the subscription `webhook`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn delivery(pool: &PgPool, webhook: Uuid, id: Uuid) -> Result<Option<DeliveryRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.deliveries WHERE webhook_id = $1 AND id = $2")
        .bind(webhook)
        .bind(id)
        .fetch_optional(pool)
        .await
}

/// Request bodies of deliveries.
#[derive(Debug, Default)]
pub struct Bodies {
    of: HashMap<Uuid, String>,
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
                    bodies.of.extend(deliveries.into_iter().map(|new| (new.id.0, new.body)));
                }
                Ok(
                    DeliveryBatchEvent::CallbackQueued(CallbackDelivery { delivery, .. })
                    | DeliveryBatchEvent::MessageQueued(MessageDelivery { delivery, .. }),
                ) => {
                    bodies.of.insert(delivery.id.0, delivery.body);
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
    pub fn take(&mut self, id: Uuid, position: i64) -> Result<String, BodyError> {
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
    Missing(Uuid),
}

impl Listed for DeliveryRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "created_at"), &[], "id");
}

/// A page of the deliveries to the subscription `webhook` and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn deliveries(
    pool: &PgPool,
    webhook: Uuid,
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
    pub id: Uuid,
    pub batch_id: Uuid,
    pub alarm_id: Uuid,
    pub contact_id: Uuid,
    /// `firing`, `cleared`, `fired_and_cleared`, `reminder` or `escalation`.
    pub kind: String,
    /// `pending`, `delivered`, `failed` or `dead_letter`.
    pub status: String,
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
    alarms: &[Uuid],
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
    webhook: Uuid,
    since: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(Uuid, Uuid)>, sqlx::Error> {
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
