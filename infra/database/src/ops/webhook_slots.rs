//! Batches of webhook deliveries that processes reserve, so that limits of requests in progress hold for all of them together.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use signalbox_from_row::FromRow;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

/// A batch that a process sends, or has sent and whose result the read model does not show yet.
#[derive(Debug, Clone, FromRow)]
pub struct Reservation {
    /// The batch.
    pub batch_id: Uuid,
    /// Its receiver.
    pub webhook_id: Uuid,
    /// Whether its requests are in progress.
    pub is_sending: bool,
}

/// The reservations of all processes at `now`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn reservations(pool: &PgPool, now: DateTime<Utc>) -> Result<Vec<Reservation>, sqlx::Error> {
    sqlx::query_as("SELECT batch_id, webhook_id, is_sending FROM ops.webhook_slots WHERE until > $1")
        .bind(now)
        .fetch_all(pool)
        .await
}

/// The same, without those of others in between: they wait until the transaction ends.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn locked_reservations(
    transaction: &mut PgConnection,
    now: DateTime<Utc>,
) -> Result<Vec<Reservation>, sqlx::Error> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('webhook.slots', 0))")
        .execute(&mut *transaction)
        .await?;
    sqlx::query("DELETE FROM ops.webhook_slots WHERE until <= $1")
        .bind(now)
        .execute(&mut *transaction)
        .await?;
    sqlx::query_as("SELECT batch_id, webhook_id, is_sending FROM ops.webhook_slots")
        .fetch_all(transaction)
        .await
}

/// Reserves each of `batches`, with the webhook that receives it, for `holder`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn reserve(
    transaction: &mut PgConnection,
    holder: Uuid,
    until: DateTime<Utc>,
    batches: Vec<(Uuid, Uuid)>,
) -> Result<(), sqlx::Error> {
    let (batches, webhooks): (Vec<_>, Vec<_>) = batches.into_iter().unzip();
    sqlx::query(
        "INSERT INTO ops.webhook_slots (batch_id, webhook_id, holder, until, is_sending)
         SELECT batch, webhook, $3, $4, true FROM unnest($1::uuid[], $2::uuid[]) AS t (batch, webhook)",
    )
    .bind(batches)
    .bind(webhooks)
    .bind(holder)
    .bind(until)
    .execute(transaction)
    .await
    .map(drop)
}

/// The requests of `batch` have ended: its slot is free. It stays reserved until the read model shows the result.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn note_end(pool: &PgPool, holder: Uuid, batch: Uuid) -> Result<(), sqlx::Error> {
    sqlx::query("UPDATE ops.webhook_slots SET is_sending = false WHERE batch_id = $1 AND holder = $2")
        .bind(batch)
        .bind(holder)
        .execute(pool)
        .await
        .map(drop)
}

/// Gives `batches` up.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn release(pool: &PgPool, holder: Uuid, batches: &[Uuid]) -> Result<(), sqlx::Error> {
    if batches.is_empty() {
        return Ok(());
    }
    sqlx::query("DELETE FROM ops.webhook_slots WHERE batch_id = ANY($1) AND holder = $2")
        .bind(batches)
        .bind(holder)
        .execute(pool)
        .await
        .map(drop)
}
