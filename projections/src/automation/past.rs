//! Rules, alarms, contacts, webhooks and deliveries at a point in time.

use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{
        Alarm, AlarmEventKind, Contact, ContactEventKind, DeliveryBatch, DeliveryBatchEventKind, Rule,
        RuleEventKind, Webhook, WebhookEventKind,
    },
    kernel::{DeliveryId, WebhookId},
};
use sqlx::PgPool;
use uuid::Uuid;

use super::{
    AlarmRow, AutomationRows, ContactRow, RuleRow, WebhookRow,
    deliveries::{DeliveryBatchRow, DeliveryRow},
    failure_streaks,
};
use crate::register::{At, Kept, Past, Resource, StateError, past, past::fold_stream_slice};

impl Resource for RuleRow {
    type Aggregate = Rule;
    type Rows = AutomationRows;

    fn is_passing(kind: RuleEventKind) -> bool {
        match kind {
            RuleEventKind::RuleTriggered => true,
            RuleEventKind::RuleCreated
            | RuleEventKind::RuleUpdated
            | RuleEventKind::RuleSilenced
            | RuleEventKind::RuleDeleted => false,
        }
    }

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.rules.get(id).filter(|row| row.deleted_at.is_none())
    }
}

impl Kept for RuleRow {
    fn makes_version(kind: RuleEventKind) -> bool {
        match kind {
            RuleEventKind::RuleCreated | RuleEventKind::RuleUpdated | RuleEventKind::RuleDeleted => true,
            RuleEventKind::RuleTriggered | RuleEventKind::RuleSilenced => false,
        }
    }
}

impl Resource for AlarmRow {
    type Aggregate = Alarm;
    type Rows = AutomationRows;

    fn is_passing(kind: AlarmEventKind) -> bool {
        match kind {
            AlarmEventKind::AlarmStarted
            | AlarmEventKind::AlarmFired
            | AlarmEventKind::AlarmCleared
            | AlarmEventKind::AlarmAcknowledged
            | AlarmEventKind::AlarmUnacknowledged
            | AlarmEventKind::AlarmAnnounced => false,
        }
    }

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.alarms.get(id)
    }
}

impl Resource for ContactRow {
    type Aggregate = Contact;
    type Rows = AutomationRows;

    fn is_passing(kind: ContactEventKind) -> bool {
        match kind {
            ContactEventKind::ContactCreated
            | ContactEventKind::ContactUpdated
            | ContactEventKind::ContactDeleted => false,
        }
    }

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.contacts.get(id)
    }
}

impl Resource for WebhookRow {
    type Aggregate = Webhook;
    type Rows = AutomationRows;

    fn is_passing(kind: WebhookEventKind) -> bool {
        match kind {
            WebhookEventKind::WebhookReplayAdvanced => true,
            WebhookEventKind::WebhookCreated
            | WebhookEventKind::WebhookUpdated
            | WebhookEventKind::WebhookReplayRequested
            | WebhookEventKind::WebhookDeleted => false,
        }
    }

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.webhooks.get(id)
    }
}

impl Kept for WebhookRow {
    fn makes_version(kind: WebhookEventKind) -> bool {
        match kind {
            WebhookEventKind::WebhookCreated
            | WebhookEventKind::WebhookUpdated
            | WebhookEventKind::WebhookDeleted => true,
            WebhookEventKind::WebhookReplayRequested | WebhookEventKind::WebhookReplayAdvanced => false,
        }
    }
}

impl Resource for DeliveryBatchRow {
    type Aggregate = DeliveryBatch;
    type Rows = AutomationRows;

    fn is_passing(kind: DeliveryBatchEventKind) -> bool {
        match kind {
            DeliveryBatchEventKind::DeliveriesQueued
            | DeliveryBatchEventKind::CallbackQueued
            | DeliveryBatchEventKind::MessageQueued
            | DeliveryBatchEventKind::AttemptsBegun
            | DeliveryBatchEventKind::AttemptsEnded
            | DeliveryBatchEventKind::DeliveriesRequeued => false,
        }
    }

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.batches.get(id)
    }
}

/// The subscription `id` at a point in time, with the start of its failure streak.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_webhook(pool: &PgPool, id: WebhookId, at: At) -> Result<Past<WebhookRow>, StateError> {
    let mut found = past::<WebhookRow>(pool, id.0, at).await?;
    if let Past::Present(row) = &mut found {
        row.failing_since = failure_streaks::failing_since(pool, id, at.position).await?;
    }
    Ok(found)
}

/// The delivery `id` of batch `batch` at a point in time.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_delivery(
    pool: &PgPool,
    batch: Uuid,
    id: DeliveryId,
    at: At,
) -> Result<Past<DeliveryRow>, StateError> {
    let mut rows = AutomationRows::default();
    fold_stream_slice::<DeliveryBatchRow>(pool, &mut rows, batch, at, Vec::new()).await?;
    Ok(rows.deliveries.get(id.0).cloned().map_or(Past::NotYetCreated, Past::Present))
}
