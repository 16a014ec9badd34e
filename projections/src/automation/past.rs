//! What rules, webhooks and deliveries were.

use signalbox_domain::automation::{Consignment, Rule, Webhook};
use sqlx::PgPool;
use uuid::Uuid;

use super::{
    AutomationRows, RuleRow, WebhookRow,
    deliveries::{ConsignmentRow, DeliveryRow},
    spells,
};
use crate::register::{At, Kept, Past, Resource, StateError, past, past::fold_life};

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

impl Resource for ConsignmentRow {
    type Aggregate = Consignment;
    type Rows = AutomationRows;

    fn of(rows: &AutomationRows, id: Uuid) -> Option<&Self> {
        rows.consignments.get(id)
    }
}

/// What the subscription `id` was, and since when its deliveries had failed.
///
/// # Errors
/// [`StateError`].
pub async fn past_webhook(pool: &PgPool, id: Uuid, at: At) -> Result<Past<WebhookRow>, StateError> {
    let mut found = past::<WebhookRow>(pool, id, at).await?;
    if let Past::Present(row) = &mut found {
        row.failing_since = spells::failing_since(pool, id, at.position).await?;
    }
    Ok(found)
}

/// What the delivery `id` of `consignment` was.
///
/// # Errors
/// [`StateError`].
pub async fn past_delivery(
    pool: &PgPool,
    consignment: Uuid,
    id: Uuid,
    at: At,
) -> Result<Past<DeliveryRow>, StateError> {
    let mut rows = AutomationRows::default();
    fold_life::<ConsignmentRow>(pool, &mut rows, consignment, at, Vec::new()).await?;
    Ok(rows.deliveries.get(id).cloned().map_or(Past::Unborn, Past::Present))
}
