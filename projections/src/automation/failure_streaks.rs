//! The start of each subscription's failure streak over time, for point-in-time queries.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::kernel::WebhookId;
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};

use crate::{ApplyError, write::upsert};

/// A change of the streak by the event at `position`.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
struct FailureStreakRow {
    webhook_id: WebhookId,
    position: i64,
    failing_since: Option<DateTime<Utc>>,
}

/// Changes that are not written yet. Rows are only inserted, never read here.
#[derive(Default)]
pub(super) struct FailureStreaks(BTreeMap<(WebhookId, i64), FailureStreakRow>);

impl FailureStreaks {
    /// Of several changes by one event the last one counts.
    pub(super) fn note(
        &mut self,
        webhook_id: WebhookId,
        position: i64,
        failing_since: Option<DateTime<Utc>>,
    ) {
        self.0.insert((webhook_id, position), FailureStreakRow { webhook_id, position, failing_since });
    }

    pub(super) async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
    ) -> Result<(), ApplyError> {
        let rows: Vec<_> = std::mem::take(&mut self.0).into_values().collect();
        upsert(connection, schema, "webhook_spells", "webhook_id, position", &rows).await
    }
}

/// Start of the failure streak of `webhook` after the event at `position`; `None` if there was none.
///
/// # Errors
/// The database's error.
pub(super) async fn failing_since(
    pool: &PgPool,
    webhook: WebhookId,
    position: i64,
) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    let known = sqlx::query_scalar(
        "SELECT failing_since FROM read.webhook_spells WHERE webhook_id = $1 AND position <= $2
          ORDER BY position DESC LIMIT 1",
    );
    let known: Option<Option<DateTime<Utc>>> =
        known.bind(webhook).bind(position).fetch_optional(pool).await?;
    Ok(known.flatten())
}
