//! Deliveries as rows, and the queries of their lists.

mod queries;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use signalbox_domain::{
    automation::{
        AttemptResult, CLAIM_SECONDS, CallbackDelivery, DeliveryBatchEvent, DeliveryStatus, Ended, LineKind,
        MessageDelivery, NewDelivery, Requeued, Verdict,
    },
    kernel::{AlarmId, DeliveryId, WebhookId},
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

pub use queries::{
    AlarmMessageRow, Bodies, BodyError, DeliveryFilter, dead_since, deliveries, delivery, messages_about,
};

use crate::{
    Word,
    automation::{WebhookRow, failure_streaks::FailureStreaks},
    table::{ReadRow, Table},
};

/// Attempts that a delivery remembers; earlier ones are in the log.
const REMEMBERED: usize = 30;

/// An event on its way to a subscription, or there.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct DeliveryRow {
    /// Key; it follows from subscription and event.
    pub id: DeliveryId,
    /// The aggregate that it belongs to.
    pub consignment_id: Uuid,
    /// Its receiver: a subscription, or the contact or host that stands for one.
    pub webhook_id: WebhookId,
    /// Names the event, in all its deliveries.
    pub event_id: Uuid,
    /// Type of the event.
    pub event_type: String,
    pub status: Word<DeliveryStatus>,
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
    pub alarm_ids: Option<Vec<AlarmId>>,
    /// By alarm: `firing`, `cleared`, `fired_and_cleared`, `reminder` or `escalation`.
    pub alarm_kinds: Option<Vec<Word<LineKind>>>,
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
    pub webhook_id: WebhookId,
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
        self.id.0
    }
}

impl ReadRow for DeliveryBatchRow {
    const TABLE: &'static str = "consignments";

    fn id(&self) -> Uuid {
        self.id
    }
}

impl DeliveryRow {
    fn new(recorded: &RecordedEvent, webhook_id: WebhookId, new: NewDelivery, is_callback: bool) -> Self {
        let at = recorded.recorded_at;
        Self {
            id: new.id,
            consignment_id: recorded.aggregate_id,
            webhook_id,
            event_id: new.event_id,
            event_type: new.event_type,
            status: DeliveryStatus::Pending.into(),
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
    fn new(id: Uuid, webhook_id: WebhookId) -> Self {
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
            rows.queue(recorded, webhook, deliveries)
        }
        DeliveryBatchEvent::CallbackQueued(callback) => rows.queue_callback(recorded, callback),
        DeliveryBatchEvent::MessageQueued(message) => rows.queue_message(recorded, message),
        DeliveryBatchEvent::AttemptsBegun { claim, at, .. } => {
            rows.begin(recorded.aggregate_id, ClaimEntry { claim, at })
        }
        DeliveryBatchEvent::AttemptsEnded { claim, webhook, attempts, .. } => {
            rows.release(recorded.aggregate_id, claim);
            for ended in attempts {
                rows.end(recorded, webhook, ended);
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
    fn queue(&mut self, recorded: &RecordedEvent, webhook_id: WebhookId, deliveries: Vec<NewDelivery>) {
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
            self.batches.put(DeliveryBatchRow::new(id, receiver));
        }
        if let Some(row) = self.batches.change(id) {
            (row.url, row.sealed_secret) = (Some(url), Some(sealed_secret));
            row.no_loopback = no_loopback;
        }
        self.deliveries.put(DeliveryRow::new(recorded, receiver, delivery, true));
    }

    fn queue_message(&mut self, recorded: &RecordedEvent, message: MessageDelivery) {
        let (receiver, alarms) = (message.receiver(), message.alarms);
        if recorded.sequence == 1 {
            self.batches.put(DeliveryBatchRow::new(recorded.aggregate_id, receiver));
        }
        let mut row = DeliveryRow::new(recorded, receiver, message.delivery, false);
        if !alarms.is_empty() {
            row.alarm_ids = Some(alarms.iter().map(|line| line.alarm).collect());
            row.alarm_kinds = Some(alarms.iter().map(|line| line.kind.into()).collect());
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

    fn end(&mut self, recorded: &RecordedEvent, webhook: WebhookId, ended: Ended) {
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
            Verdict::Delivered => (DeliveryStatus::Delivered, None),
            Verdict::Retry { due_at, .. } => (DeliveryStatus::Failed, Some(due_at)),
            Verdict::DeadLetter => (DeliveryStatus::DeadLetter, None),
        };
        row.status = status.into();
        row.due_at = due_at;
        row.ended_at = due_at.is_none().then_some(ended_at);
        let history = &mut row.history;
        history.push(Attempt { round, attempt, result });
        let forgotten = history.len().saturating_sub(REMEMBERED);
        history.drain(..forgotten);
    }

    fn note_health(&mut self, webhook: WebhookId, succeeded: bool, at: DateTime<Utc>, position: i64) {
        if self.webhooks.get(webhook.0).is_none_or(|row| row.failing_since.is_none() == succeeded) {
            return;
        }
        if let Some(row) = self.webhooks.change(webhook.0) {
            row.failing_since = (!succeeded).then_some(at);
            self.failure_streaks.note(webhook, position, row.failing_since);
        }
    }

    fn requeue(&mut self, recorded: &RecordedEvent, at: DateTime<Utc>, requeued: &Requeued) {
        let Some(row) = self.deliveries.change(requeued.id.0) else { return };
        row.round = i32::try_from(requeued.round).unwrap_or(i32::MAX);
        row.attempts = 0;
        row.status = DeliveryStatus::Pending.into();
        row.due_at = Some(at);
        row.ended_at = None;
        row.updated_at = recorded.recorded_at;
    }
}
