//! Deliveries of webhooks and contacts that were deleted.
//!
//! There may be millions, so the fold of a deletion removes one batch and records the receiver in `removed_webhooks`;
//! a worker removes the others by [`remove_deliveries`]. They are neither listed nor sent meanwhile, because their
//! receiver is gone.

use signalbox_boxed::boxed;
use signalbox_database::{BATCH, delete_batch};
use signalbox_domain::kernel::WebhookId;
use sqlx::{PgConnection, PgPool};

use crate::ApplyError;

/// Effect of the deletion of webhook or contact `$1`, by the event at `$2`, on its deliveries.
pub(crate) const REMOVE_FIRST: [&str; 3] = [
    "DELETE FROM {schema}.deliveries WHERE id IN (
        SELECT id FROM {schema}.deliveries WHERE webhook_id = $1 AND $2::bigint > 0 LIMIT 10000)",
    "DELETE FROM {schema}.consignments WHERE id IN (
        SELECT id FROM {schema}.consignments WHERE webhook_id = $1 AND $2::bigint > 0 LIMIT 10000)",
    "INSERT INTO {schema}.removed_webhooks (id)
     SELECT $1::uuid WHERE $2::bigint > 0
        AND (EXISTS (SELECT FROM {schema}.deliveries WHERE webhook_id = $1::uuid)
          OR EXISTS (SELECT FROM {schema}.consignments WHERE webhook_id = $1::uuid))
         ON CONFLICT DO NOTHING",
];

/// Removes the first deliveries of `webhook`, and records it if there are more.
pub(super) async fn remove_first(
    connection: &mut PgConnection,
    schema: &str,
    webhook: WebhookId,
) -> Result<(), ApplyError> {
    for statement in REMOVE_FIRST {
        let statement = statement.replace("{schema}", schema);
        sqlx::query(&statement).bind(webhook).bind(1_i64).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Removes a batch of the deliveries of one deleted webhook; false if there was nothing to remove.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn remove_deliveries(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let webhook: Option<WebhookId> =
        sqlx::query_scalar("SELECT id FROM read.removed_webhooks ORDER BY id LIMIT 1")
            .fetch_optional(pool)
            .await?;
    let Some(webhook) = webhook else { return Ok(false) };
    let deliveries = delete_batch(pool, "read.deliveries", "t.webhook_id = $1", webhook).await?;
    let batches = delete_batch(pool, "read.consignments", "t.webhook_id = $1", webhook).await?;
    if deliveries.max(batches) >= BATCH.unsigned_abs() {
        return Ok(true);
    }
    // A fold may hold some of them.
    let finished = sqlx::query(
        "DELETE FROM read.removed_webhooks WHERE id = $1
            AND NOT EXISTS (SELECT FROM read.deliveries WHERE webhook_id = $1)
            AND NOT EXISTS (SELECT FROM read.consignments WHERE webhook_id = $1)",
    )
    .bind(webhook)
    .execute(pool)
    .await?;
    Ok(finished.rows_affected() > 0)
}
