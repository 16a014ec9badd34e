//! Log entries as rows, and queries about them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_boxed::boxed;
use signalbox_domain::{
    kernel::UserId,
    monitoring::{LogEntryEvent, LogStatus, LogType},
};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    Word,
    page::{Listed, Order, Page, Sorting, and_eq, and_like, and_within, list},
    table::{ReadRow, Table},
};

/// A log entry.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct LogEntryRow {
    /// Key.
    pub id: Uuid,
    pub log_type: Word<LogType>,
    pub status: Word<LogStatus>,
    /// The sentence.
    pub content: String,
    /// The reporting component.
    pub source: String,
    /// The user concerned, or the author.
    pub user_id: Option<UserId>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for LogEntryRow {
    const TABLE: &'static str = "log_entries";

    fn id(&self) -> Uuid {
        self.id
    }
}

pub(super) fn fold(rows: &mut Table<LogEntryRow>, recorded: &RecordedEvent, event: LogEntryEvent) {
    let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
    if let LogEntryEvent::LogEntryWritten(new) = event {
        return rows.put(LogEntryRow {
            id,
            log_type: new.kind.into(),
            status: LogStatus::Unread.into(),
            content: new.content,
            source: new.source,
            user_id: new.user,
            version: recorded.sequence,
            created_at: at,
            updated_at: at,
        });
    }
    let Some(row) = rows.change(id) else { return };
    row.version = recorded.sequence;
    row.updated_at = at;
    match event {
        LogEntryEvent::LogEntryWritten(_) => {}
        LogEntryEvent::LogEntryMarked { status } => row.status = status.into(),
        LogEntryEvent::LogEntryEdited { to, .. } => row.content = to,
    }
}

/// Which entries are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct LogEntryFilter {
    /// `error`, `warning` or `info`.
    pub kind: Option<&'static str>,
    /// `read` or `unread`.
    pub status: Option<&'static str>,
    /// The reporting component.
    pub source: Option<String>,
    /// Part of the sentence, in any case of letters.
    pub content: Option<String>,
    /// The user concerned, or the author.
    pub user: Option<UserId>,
    /// Written at or after.
    pub from: Option<DateTime<Utc>>,
    /// Written before.
    pub to: Option<DateTime<Utc>>,
}

/// The entry `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn log_entry(pool: &PgPool, id: Uuid) -> Result<Option<LogEntryRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.log_entries WHERE id = $1").bind(id).fetch_optional(pool).await
}

impl Listed for LogEntryRow {
    const SORTING: Sorting = Sorting::newest_first(("created_on", "created_at"), &[], "id");
}

/// A page of entries and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn log_entries(
    pool: &PgPool,
    filter: &LogEntryFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<LogEntryRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.log_entries WHERE true");
        and_eq(query, "log_type", filter.kind);
        and_eq(query, "status", filter.status);
        and_eq(query, "source", filter.source.as_deref());
        and_like(query, "content", filter.content.as_deref());
        and_eq(query, "user_id", filter.user);
        and_within(query, "created_at", filter.from, filter.to);
    })
    .await
}
