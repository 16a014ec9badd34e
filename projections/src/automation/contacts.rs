//! Contacts as rows, and queries about them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_boxed::boxed;
use signalbox_domain::{
    automation::{ContactEvent, ContactKind, ContactSpec, Destination, NewContact, QuietHours},
    kernel::{ContactId, UserId},
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

/// A contact.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct ContactRow {
    pub id: ContactId,
    pub owner_id: UserId,
    pub name: String,
    pub kind: Word<ContactKind>,
    pub destination: Json<Destination>,
    pub quiet_hours: Option<Json<QuietHours>>,
    /// False while its newest change cannot be read: its old address gets nothing more.
    pub is_reachable: bool,
    /// Version of the aggregate.
    pub version: i64,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for ContactRow {
    const TABLE: &'static str = "contacts";

    fn id(&self) -> Uuid {
        self.id.0
    }
}

impl ContactRow {
    fn set_spec(&mut self, spec: ContactSpec) {
        let ContactSpec { name, destination, quiet_hours } = spec;
        self.name = name;
        self.kind = destination.kind().into();
        self.destination = Json(destination);
        self.quiet_hours = quiet_hours.map(Json);
        self.is_reachable = true;
    }
}

pub(super) fn fold(rows: &mut Table<ContactRow>, recorded: &RecordedEvent, event: ContactEvent) {
    let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
    match event {
        ContactEvent::ContactCreated(NewContact { owner, spec }) => {
            let ContactSpec { name, destination, quiet_hours } = spec;
            rows.put(ContactRow {
                id: ContactId(id),
                owner_id: owner,
                name,
                kind: destination.kind().into(),
                destination: Json(destination),
                quiet_hours: quiet_hours.map(Json),
                is_reachable: true,
                version: recorded.sequence,
                created_at: at,
                updated_at: at,
            });
        }
        ContactEvent::ContactUpdated { to, .. } => {
            if let Some(row) = rows.change(id) {
                row.set_spec(to);
                (row.version, row.updated_at) = (recorded.sequence, at);
            }
        }
        ContactEvent::ContactDeleted { .. } => rows.remove(id),
    }
}

/// Which contacts are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct ContactFilter {
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
    pub kind: Option<ContactKind>,
    /// Only contacts whose newest message failed or was given up, or only the others.
    pub failing: Option<bool>,
}

/// The contact `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn contact(pool: &PgPool, id: ContactId) -> Result<Option<ContactRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.contacts WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// Those of the contacts `ids` that exist.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn known_contacts(pool: &PgPool, ids: &[ContactId]) -> Result<Vec<ContactId>, sqlx::Error> {
    sqlx::query_scalar("SELECT id FROM read.contacts WHERE id = ANY($1::uuid[])")
        .bind(ids)
        .fetch_all(pool)
        .await
}

impl Listed for ContactRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "created_at"), &[("name", "name")], "id");
}

/// Whether the newest message to a contact that was attempted failed or was given up; few entries of an index for each contact.
const NEWEST_FAILED: &str =
    "COALESCE((SELECT newest.status IN ('failed', 'dead_letter') FROM read.deliveries newest
     WHERE newest.webhook_id = contacts.id AND newest.status <> 'pending' ORDER BY newest.created_at DESC, newest.id DESC LIMIT 1), false)";

/// A page of contacts and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn contacts(
    pool: &PgPool,
    filter: &ContactFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<ContactRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.contacts WHERE true");
        and_like(query, "name", filter.name.as_deref());
        and_eq(query, "kind", filter.kind.map(ContactKind::as_str));
        and_eq(query, NEWEST_FAILED, filter.failing);
    })
    .await
}
