//! What the delivery worker asks: which claims are in force, and which attempts are due.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::automation::CLAIM_SECONDS;
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

/// A claim that has not lapsed.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LiveClaim {
    /// The consignment that it is on.
    pub consignment_id: Uuid,
    /// Whose deliveries.
    pub webhook_id: Uuid,
}

/// A consignment with attempts that are due.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct DueConsignment {
    /// Key.
    pub id: Uuid,
    /// Whose deliveries.
    pub webhook_id: Uuid,
    /// Where they are posted to.
    pub url: String,
    /// What signs them, encrypted.
    pub sealed_secret: Option<String>,
    /// Whether all attempts for this subscription have failed for a while.
    pub is_failing: bool,
}

/// An attempt that is due.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct DueDelivery {
    /// Key.
    pub id: Uuid,
    /// The aggregate that it belongs to.
    pub consignment_id: Uuid,
    /// Names the event.
    pub event_id: Uuid,
    /// Type of the event.
    pub event_type: String,
    /// Attempts of this round that have ended.
    pub attempts: i32,
    /// Where the log says what is posted.
    pub position: i64,
}

/// The claims that are in force at `now`.
///
/// # Errors
/// The database's error.
pub async fn live_claims(pool: &PgPool, now: DateTime<Utc>) -> Result<Vec<LiveClaim>, sqlx::Error> {
    sqlx::query_as(
        "SELECT DISTINCT c.id AS consignment_id, c.webhook_id
           FROM read.consignments c CROSS JOIN LATERAL jsonb_array_elements(c.claims) AS claim
          WHERE c.claimed_at > $1 AND (claim->>'at')::timestamptz > $1",
    )
    .bind(now - TimeDelta::seconds(CLAIM_SECONDS))
    .fetch_all(pool)
    .await
}

/// Consignments of enabled subscriptions, and callbacks, with attempts that are due at `now`, at most `limit`; not those that are `busy`, and
/// none of the subscriptions that are `full`. First one of each subscription, then a second one of each: a subscription
/// that has fallen far behind does not stand before the others.
///
/// # Errors
/// The database's error.
pub async fn due_consignments(
    pool: &PgPool,
    now: DateTime<Utc>,
    busy: &[Uuid],
    full: &[Uuid],
    limit: i64,
) -> Result<Vec<DueConsignment>, sqlx::Error> {
    sqlx::query_as(
        "SELECT due.id, w.id AS webhook_id, w.url, w.sealed_secret, w.failing_since IS NOT NULL AS is_failing,
                due.turn, due.due_at
           FROM read.webhooks w CROSS JOIN LATERAL (
                SELECT consignment_id AS id, min(due_at) AS due_at, row_number() OVER (ORDER BY min(due_at)) AS turn
                  FROM (SELECT consignment_id, due_at FROM read.deliveries d
                         WHERE d.webhook_id = w.id AND d.due_at <= $1 AND d.consignment_id <> ALL($2)
                         ORDER BY d.due_at, d.position LIMIT 200) d
                 GROUP BY consignment_id) due
          WHERE w.enabled AND w.id <> ALL($3)
         UNION ALL
         SELECT c.id, c.webhook_id, c.url, c.sealed_secret, d.attempts > 0,
                row_number() OVER (PARTITION BY c.webhook_id ORDER BY d.due_at, d.position), d.due_at
           FROM (SELECT consignment_id, attempts, due_at, position FROM read.deliveries
                  WHERE is_callback AND due_at <= $1 AND consignment_id <> ALL($2) AND webhook_id <> ALL($3)
                  ORDER BY due_at, position LIMIT 200) d
           JOIN read.consignments c ON c.id = d.consignment_id
          ORDER BY turn, due_at LIMIT $4",
    )
    .bind(now)
    .bind(busy)
    .bind(full)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// The attempts of `consignments` that are due at `now`, the longest due first.
///
/// # Errors
/// The database's error.
pub async fn due_deliveries(
    pool: &PgPool,
    now: DateTime<Utc>,
    consignments: &[Uuid],
) -> Result<Vec<DueDelivery>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, consignment_id, event_id, event_type, attempts, position FROM read.deliveries
          WHERE consignment_id = ANY($2) AND due_at <= $1 ORDER BY due_at, position, id",
    )
    .bind(now)
    .bind(consignments)
    .fetch_all(pool)
    .await
}
