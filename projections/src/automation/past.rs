//! Rules, alarms, contacts, webhooks and deliveries at a point in time.

use signalbox_boxed::boxed;
use signalbox_domain::automation::{Alarm, Contact, DeliveryBatch, Rule, Webhook};
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

    const PASSING: &'static [&'static str] = &["rule_triggered"];

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.rules.get(id).filter(|row| row.deleted_at.is_none())
    }
}

impl Kept for RuleRow {
    const CHANGES: &'static [&'static str] = &["rule_created", "rule_updated", "rule_deleted"];
}

impl Resource for AlarmRow {
    type Aggregate = Alarm;
    type Rows = AutomationRows;

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.alarms.get(id)
    }
}

impl Resource for ContactRow {
    type Aggregate = Contact;
    type Rows = AutomationRows;

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.contacts.get(id)
    }
}

impl Resource for WebhookRow {
    type Aggregate = Webhook;
    type Rows = AutomationRows;

    const PASSING: &'static [&'static str] = &["webhook_replay_advanced"];

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.webhooks.get(id)
    }
}

impl Kept for WebhookRow {
    const CHANGES: &'static [&'static str] = &["webhook_created", "webhook_updated", "webhook_deleted"];
}

impl Resource for DeliveryBatchRow {
    type Aggregate = DeliveryBatch;
    type Rows = AutomationRows;

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.batches.get(id)
    }
}

/// The subscription `id` at a point in time, with the start of its failure streak.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_webhook(pool: &PgPool, id: Uuid, at: At) -> Result<Past<WebhookRow>, StateError> {
    let mut found = past::<WebhookRow>(pool, id, at).await?;
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
    id: Uuid,
    at: At,
) -> Result<Past<DeliveryRow>, StateError> {
    let mut rows = AutomationRows::default();
    fold_stream_slice::<DeliveryBatchRow>(pool, &mut rows, batch, at, Vec::new()).await?;
    Ok(rows.deliveries.get(id).cloned().map_or(Past::NotYetCreated, Past::Present))
}
