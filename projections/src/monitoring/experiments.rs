//! Experiments as rows, and what is asked about them.

use chrono::{DateTime, Utc};
use serde::Serialize;
use signalbox_domain::monitoring::ExperimentEvent;
use signalbox_event_store::RecordedEvent;
use sqlx::{FromRow, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use crate::{
    page::{Page, and_like, push_page},
    table::{ReadRow, Table},
};

/// An experiment.
#[derive(Debug, Clone, PartialEq, Serialize, FromRow)]
pub struct ExperimentRow {
    /// Key.
    pub id: Uuid,
    /// Who started it.
    pub owner_id: Uuid,
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
                owner_id: new.owner.0,
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
pub async fn experiment(pool: &PgPool, id: Uuid) -> Result<Option<ExperimentRow>, sqlx::Error> {
    sqlx::query_as("SELECT * FROM read.experiments WHERE id = $1").bind(id).fetch_optional(pool).await
}

/// A page of experiments, newest first, and how many there are.
///
/// # Errors
/// The database's error.
pub async fn experiments(
    pool: &PgPool,
    filter: &ExperimentFilter,
    page: Page,
) -> Result<(Vec<ExperimentRow>, i64), sqlx::Error> {
    let condition = |query: &mut QueryBuilder<'_, Postgres>| {
        query.push(" FROM read.experiments WHERE true");
        and_like(query, "name", filter.name.as_deref());
        if let Some(running) = filter.running {
            query.push(" AND (stopped_at IS NULL) = ").push_bind(running);
        }
        if let Some(from) = filter.from {
            query.push(" AND started_at >= ").push_bind(from);
        }
        if let Some(to) = filter.to {
            query.push(" AND started_at < ").push_bind(to);
        }
    };
    let mut rows = QueryBuilder::new("SELECT *");
    condition(&mut rows);
    rows.push(" ORDER BY started_at DESC, id DESC");
    push_page(&mut rows, page);
    let mut count = QueryBuilder::new("SELECT count(*)");
    condition(&mut count);
    Ok((rows.build_query_as().fetch_all(pool).await?, count.build_query_scalar().fetch_one(pool).await?))
}
