//! Webhook subscriptions as rows, and queries about them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{
        EventSubject, EventType, NewWebhook, PreviousKeys, Replay, RetryPolicy, SigningKey, WebhookEvent,
        WebhookFilters, WebhookSpec,
    },
    kernel::{UserId, WebhookId},
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

use crate::{
    Word,
    page::{Listed, Order, Page, Sorting, and_eq, and_like, list},
    table::{ReadRow, Table},
};

/// A subscription.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct WebhookRow {
    /// Key.
    pub id: WebhookId,
    pub owner_id: UserId,
    /// Where events are posted to.
    pub url: String,
    /// The signing secret, encrypted.
    pub sealed_secret: Option<String>,
    /// The subscribed event types.
    pub events: Vec<Word<EventType>>,
    /// Whether events are delivered.
    pub enabled: bool,
    /// When failed attempts are repeated: `default` or `standard`.
    pub retry: Word<RetryPolicy>,
    /// The private key that signs, encrypted; absent if the secret signs.
    pub sealed_key: Option<String>,
    /// Its public key.
    pub public_key: Option<String>,
    /// The replaced secret and key, which sign too for a while.
    pub previous: Option<Json<PreviousKeys>>,
    pub filters: Json<WebhookFilters>,
    /// Since when all attempts have failed.
    pub failing_since: Option<DateTime<Utc>>,
    /// Past events that are being delivered: their key,
    pub replay_id: Option<Uuid>,
    /// the position after which they lie,
    pub replay_after: Option<i64>,
    /// and that of the last one.
    pub replay_last: Option<i64>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// Time of the last change by a user.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for WebhookRow {
    const TABLE: &'static str = "webhooks";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

impl WebhookRow {
    /// The replay in progress.
    pub fn replay(&self) -> Option<Replay> {
        Some(Replay { id: self.replay_id?, after: self.replay_after?, last: self.replay_last? })
    }

    /// Whether events of type `word` about `subject` are delivered to it while it is enabled.
    pub fn receives(&self, word: &str, subject: &EventSubject) -> bool {
        self.events.iter().any(|event| event.as_str() == word) && self.filters.pass(subject)
    }

    /// When failed attempts are repeated.
    pub fn retry(&self) -> RetryPolicy {
        self.retry.or_default()
    }

    fn set_spec(&mut self, spec: WebhookSpec) {
        let WebhookSpec { url, sealed_secret, key, previous, events, enabled, retry, filters } = spec;
        self.url = url;
        self.sealed_secret = sealed_secret;
        (self.sealed_key, self.public_key) = match key {
            Some(SigningKey { sealed, public }) => (Some(sealed), Some(public)),
            None => (None, None),
        };
        self.previous = previous.map(|previous| Json(*previous));
        self.events = events.into_iter().map(Word::from).collect();
        self.enabled = enabled;
        self.retry = retry.into();
        self.filters = Json(*filters);
    }

    fn set_replay(&mut self, replay: Option<Replay>) {
        self.replay_id = replay.map(|replay| replay.id);
        self.replay_after = replay.map(|replay| replay.after);
        self.replay_last = replay.map(|replay| replay.last);
    }
}

pub(super) fn fold(rows: &mut Table<WebhookRow>, recorded: &RecordedEvent, event: WebhookEvent) {
    let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
    match event {
        WebhookEvent::WebhookCreated(NewWebhook { owner, spec }) => {
            let mut row = WebhookRow {
                id: WebhookId(id),
                owner_id: owner,
                url: String::new(),
                sealed_secret: None,
                events: Vec::new(),
                enabled: false,
                retry: spec.retry.into(),
                sealed_key: None,
                public_key: None,
                previous: None,
                filters: Json(WebhookFilters::default()),
                failing_since: None,
                replay_id: None,
                replay_after: None,
                replay_last: None,
                version: recorded.sequence,
                created_at: at,
                updated_at: at,
            };
            row.set_spec(spec);
            return rows.put(row);
        }
        WebhookEvent::WebhookDeleted { .. } => return rows.remove(id),
        _ => {}
    }
    let Some(row) = rows.change(id) else { return };
    row.version = recorded.sequence;
    match event {
        WebhookEvent::WebhookUpdated { to, .. } => {
            row.set_spec(to);
            row.updated_at = at;
        }
        WebhookEvent::WebhookReplayRequested(replay) => row.set_replay(Some(replay)),
        WebhookEvent::WebhookReplayAdvanced { finished: true, .. } => row.set_replay(None),
        WebhookEvent::WebhookReplayAdvanced { to, .. } => row.replay_after = Some(to),
        WebhookEvent::WebhookCreated(_) | WebhookEvent::WebhookDeleted { .. } => {}
    }
}

/// Which subscriptions are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct WebhookFilter {
    /// Part of the address, in any case of letters.
    pub url: Option<String>,
    /// Whether events are delivered to them.
    pub enabled: Option<bool>,
    /// A subscribed event type.
    pub event: Option<String>,
}

/// The subscription `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn webhook(pool: &PgPool, id: WebhookId) -> Result<Option<WebhookRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.webhooks WHERE id = $1").bind(id).fetch_optional(pool).await
}

impl Listed for WebhookRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "created_at"), &[("url", "url")], "id");
}

/// A page of subscriptions and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn webhooks(
    pool: &PgPool,
    filter: &WebhookFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<WebhookRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.webhooks WHERE true");
        and_like(query, "url", filter.url.as_deref());
        and_eq(query, "enabled", filter.enabled);
        if let Some(event) = &filter.event {
            query.push(" AND ").push_bind(event.clone()).push(" = ANY(events)");
        }
    })
    .await
}

/// Subscriptions to which past events are being delivered, at most `limit`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn replaying(pool: &PgPool, limit: i64) -> Result<Vec<WebhookRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.webhooks WHERE replay_id IS NOT NULL ORDER BY id LIMIT $1")
        .bind(limit)
        .fetch_all(pool)
        .await
}

/// How an entry of the log names the receiver of a delivery: a webhook by its id, because everybody reads these entries and only
/// admins may see addresses, which can hold secrets; a contact by its name.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn receiver_name(pool: &PgPool, id: WebhookId) -> Result<Option<String>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT 'webhook ' || id FROM read.webhooks WHERE id = $1
          UNION ALL SELECT 'contact ' || name FROM read.contacts WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(pool)
    .await
}
