//! Since when a subscription's deliveries had failed at any time, for those who ask what it was.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{FromRow, PgConnection, PgPool};
use uuid::Uuid;

use crate::{ApplyError, write::upsert};

/// From the event at `position` on.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
struct SpellRow {
    webhook_id: Uuid,
    position: i64,
    failing_since: Option<DateTime<Utc>>,
}

/// Changes that are not written yet. They are only ever added, so none is read.
#[derive(Default)]
pub(super) struct Spells(BTreeMap<(Uuid, i64), SpellRow>);

impl Spells {
    /// Of several changes by one event the last one counts.
    pub(super) fn note(&mut self, webhook_id: Uuid, position: i64, failing_since: Option<DateTime<Utc>>) {
        self.0.insert((webhook_id, position), SpellRow { webhook_id, position, failing_since });
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

/// Since when the deliveries to `webhook` had failed after the event at `position`.
///
/// # Errors
/// The database's error.
pub(super) async fn failing_since(
    pool: &PgPool,
    webhook: Uuid,
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
