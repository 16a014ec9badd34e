//! Experiments as rows, and queries about them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_boxed::boxed;
use signalbox_domain::{kernel::UserId, monitoring::ExperimentEvent};
use signalbox_event_store::RecordedEvent;
use signalbox_from_row::FromRow;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    page::{Listed, Order, Page, Sorting, and_eq, and_like, and_within, list},
    table::{ReadRow, Table},
};

/// An experiment.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct ExperimentRow {
    /// Key.
    pub id: Uuid,
    pub owner_id: UserId,
    /// Unique name.
    pub name: String,
    /// When it began.
    pub started_at: DateTime<Utc>,
    /// When it ended; `None` while it runs.
    pub stopped_at: Option<DateTime<Utc>>,
    /// Version of the aggregate.
    pub version: i64,
    /// When it last changed.
    pub updated_at: DateTime<Utc>,
}

impl ReadRow for ExperimentRow {
    const TABLE: &'static str = "experiments";

    fn id(&self) -> Uuid {
        self.id
    }
}

pub(super) fn fold(rows: &mut Table<ExperimentRow>, recorded: &RecordedEvent, event: ExperimentEvent) {
    let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
    match event {
        ExperimentEvent::ExperimentStarted(new) => {
            return rows.put(ExperimentRow {
                id,
                owner_id: new.owner,
                name: new.name,
                started_at: at,
                stopped_at: None,
                version: recorded.sequence,
                updated_at: at,
            });
        }
        ExperimentEvent::ExperimentDeleted { .. } => return rows.remove(id),
        _ => {}
    }
    let Some(row) = rows.change(id) else { return };
    row.version = recorded.sequence;
    row.updated_at = at;
    match event {
        ExperimentEvent::ExperimentRenamed { to, .. } => row.name = to,
        ExperimentEvent::ExperimentStopped => row.stopped_at = Some(at),
        ExperimentEvent::ExperimentStarted(_) | ExperimentEvent::ExperimentDeleted { .. } => {}
    }
}

/// Which experiments are listed; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct ExperimentFilter {
    /// Part of the name, in any case of letters.
    pub name: Option<String>,
    /// Whether they run.
    pub running: Option<bool>,
    /// Begun at or after.
    pub from: Option<DateTime<Utc>>,
    /// Begun before.
    pub to: Option<DateTime<Utc>>,
}

/// The experiment `id`.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn experiment(pool: &PgPool, id: Uuid) -> Result<Option<ExperimentRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.experiments WHERE id = $1").bind(id).fetch_optional(pool).await
}

impl Listed for ExperimentRow {
    const SORTING: Sorting = Sorting::newest_first(
        ("started_on", "started_at"),
        &[("name", "name"), ("status", "CASE WHEN stopped_at IS NULL THEN 'running' ELSE 'stopped' END")],
        "id",
    );
}

/// A page of experiments and how many there are.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn experiments(
    pool: &PgPool,
    filter: &ExperimentFilter,
    order: Order,
    page: Page,
) -> Result<(Vec<ExperimentRow>, i64), sqlx::Error> {
    list(pool, "SELECT *", order, page, |query| {
        query.push(" FROM read.experiments WHERE true");
        and_like(query, "name", filter.name.as_deref());
        and_eq(query, "(stopped_at IS NULL)", filter.running);
        and_within(query, "started_at", filter.from, filter.to);
    })
    .await
}
