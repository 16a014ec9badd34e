//! Queries of the delivery worker: claims in force, and attempts that are due.

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{CLAIM_SECONDS, Destination, PreviousKeys, RetryPolicy},
    kernel::{DeliveryId, WebhookId},
};
use signalbox_from_row::FromRow;
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

use crate::Word;

/// A claim that has not lapsed.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct LiveClaim {
    /// The batch of the claim.
    pub batch_id: Uuid,
    pub webhook_id: WebhookId,
}

/// A batch with attempts that are due.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct DueBatch {
    /// Key.
    pub id: Uuid,
    pub webhook_id: WebhookId,
    /// Where they are posted to.
    pub url: String,
    /// The signing secret, encrypted.
    pub sealed_secret: Option<String>,
    /// The private key that signs in place of the secret, encrypted.
    pub sealed_key: Option<String>,
    /// The replaced secret and key.
    pub previous: Option<Json<PreviousKeys>>,
    /// When failed attempts are repeated: `default` or `standard`.
    pub retry: Word<RetryPolicy>,
    /// Whether the address of this machine itself is refused to them.
    pub no_loopback: bool,
    /// Where the contact is notified, in place of the address.
    pub destination: Option<Json<Destination>>,
    /// Whether all attempts for this subscription have failed for a while. A contact counts as such: it gets one message at a time.
    pub is_failing: bool,
}

impl DueBatch {
    /// When failed attempts are repeated.
    pub fn retry(&self) -> RetryPolicy {
        self.retry.or_default()
    }
}

/// An attempt that is due.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct DueDelivery {
    /// Key.
    pub id: DeliveryId,
    /// The aggregate that it belongs to.
    pub consignment_id: Uuid,
    /// Names the event.
    pub event_id: Uuid,
    /// Type of the event.
    pub event_type: String,
    /// Attempts of this round that have ended.
    pub attempts: i32,
    /// Position of the event that holds the body.
    pub position: i64,
}

/// The claims that are in force at `now`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn live_claims(pool: &PgPool, now: DateTime<Utc>) -> Result<Vec<LiveClaim>, sqlx::Error> {
    sqlx::query_as(
        "SELECT DISTINCT c.id AS batch_id, c.webhook_id
           FROM read.consignments c CROSS JOIN LATERAL jsonb_array_elements(c.claims) AS claim
          WHERE c.claimed_at > $1 AND (claim->>'at')::timestamptz > $1",
    )
    .bind(now - TimeDelta::seconds(CLAIM_SECONDS))
    .fetch_all(pool)
    .await
}

/// A receiver that shares its slots with others of its kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct SharingReceiver {
    /// The contact, or the subscription all of whose attempts have failed for a while.
    pub id: WebhookId,
    pub is_contact: bool,
    pub is_by_mail: bool,
}

/// All contacts, and the subscriptions that are failing.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn sharing_receivers(pool: &PgPool) -> Result<Vec<SharingReceiver>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, true AS is_contact, kind = 'email' AS is_by_mail FROM read.contacts
         UNION ALL
         SELECT id, false, false FROM read.webhooks WHERE enabled AND failing_since IS NOT NULL",
    )
    .fetch_all(pool)
    .await
}

/// Which due batches are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct DueFilter<'a> {
    /// Batches and deliveries that are in progress or paused.
    pub busy: &'a [Uuid],
    /// Subscriptions and contacts that get no more.
    pub full: &'a [WebhookId],
    /// Subscriptions and contacts with requests in progress: those that are failing get no more.
    pub in_progress: &'a [WebhookId],
    /// Whether subscriptions that are failing get none.
    pub no_failing: bool,
    /// Subscriptions and contacts that were served lately, the last one at the end.
    pub served: &'a [WebhookId],
    /// Batches at most.
    pub limit: i64,
    /// Deliveries of each subscription that are examined.
    pub examined: i64,
}

/// Batches of enabled subscriptions, of contacts, and callbacks, with attempts that are due at `now`. Messages for contacts are
/// first, then one batch of each subscription at a time, of the one first that was served the longest ago,
/// so that neither a large backlog nor attempts that fail at once delay the others.
///
/// The busy ones are sought by `NOT IN (SELECT …)`, for which PostgreSQL makes a hash table once: under load there are hundreds, and
/// thousands of deliveries are compared with them.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn due_batches<'a>(
    pool: &'a PgPool,
    now: DateTime<Utc>,
    filter: DueFilter<'a>,
) -> Result<Vec<DueBatch>, sqlx::Error> {
    sqlx::query_as(
        "SELECT batch.* FROM (
         SELECT due.id, w.id AS webhook_id, w.url, w.sealed_secret, w.sealed_key, w.previous, w.retry, false AS no_loopback,
                w.destination, w.is_failing, due.turn, due.due_at
           FROM (SELECT id, url, sealed_secret, sealed_key, previous, retry, NULL::jsonb AS destination,
                        failing_since IS NOT NULL AS is_failing
                   FROM read.webhooks WHERE enabled
                  UNION ALL
                 SELECT id, '', NULL, NULL, NULL, 'standard', destination, true FROM read.contacts WHERE is_reachable) w
          CROSS JOIN LATERAL (
                SELECT consignment_id AS id, min(due_at) AS due_at, row_number() OVER (ORDER BY min(due_at)) AS turn
                  FROM (SELECT consignment_id, due_at FROM read.deliveries d
                         WHERE d.webhook_id = w.id AND d.due_at <= $1 AND d.consignment_id NOT IN (SELECT unnest($2::uuid[])) AND d.id NOT IN (SELECT unnest($2::uuid[]))
                         ORDER BY d.due_at, d.position LIMIT $5) d
                 GROUP BY consignment_id) due
          WHERE w.id <> ALL($3) AND NOT (w.is_failing AND (due.turn > 1 OR w.id = ANY($6) OR ($7 AND w.destination IS NULL)))
         UNION ALL
         SELECT c.id, c.webhook_id, c.url, c.sealed_secret, NULL, NULL, 'default', c.no_loopback, NULL, d.attempts > 0,
                row_number() OVER (PARTITION BY c.webhook_id ORDER BY d.due_at, d.position), d.due_at
           FROM (SELECT consignment_id, attempts, due_at, position FROM read.deliveries
                  WHERE is_callback AND due_at <= $1 AND consignment_id NOT IN (SELECT unnest($2::uuid[])) AND id NOT IN (SELECT unnest($2::uuid[]))
                    AND webhook_id <> ALL($3) AND NOT (attempts > 0 AND ($7 OR webhook_id = ANY($6)))
                  ORDER BY due_at, position LIMIT $5) d
           JOIN read.consignments c ON c.id = d.consignment_id
         ) batch
          ORDER BY destination IS NULL, turn, coalesce(array_position($8::uuid[], webhook_id), 0), due_at LIMIT $4",
    )
    .bind(now)
    .bind(filter.busy)
    .bind(filter.full)
    .bind(filter.limit)
    .bind(filter.examined)
    .bind(filter.in_progress)
    .bind(filter.no_failing)
    .bind(filter.served)
    .fetch_all(pool)
    .await
}

/// The attempts of `batches` that are due at `now`, the longest due first; without those of deliveries that are
/// `busy`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn due_deliveries(
    pool: &PgPool,
    now: DateTime<Utc>,
    batches: &[Uuid],
    busy: &[Uuid],
) -> Result<Vec<DueDelivery>, sqlx::Error> {
    sqlx::query_as(
        "SELECT id, consignment_id, event_id, event_type, attempts, position FROM read.deliveries
          WHERE consignment_id = ANY($2) AND due_at <= $1 AND id NOT IN (SELECT unnest($3::uuid[])) ORDER BY due_at, position, id",
    )
    .bind(now)
    .bind(batches)
    .bind(busy)
    .fetch_all(pool)
    .await
}
