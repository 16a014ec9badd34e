use chrono::{DateTime, Utc};
use sqlx::{PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use crate::{
    RecordedEvent,
    read::{HEADER, position_before},
};

/// How long PostgreSQL may look for events of a rare combination before the search is given up.
const PATIENCE: &str = "5s";
/// PostgreSQL's code for a statement that was ended.
const CANCELED: &str = "57014";

/// Which events are wanted; `None` means any.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// Aggregate's type.
    pub stream_type: Option<String>,
    /// Aggregate's key; finds nothing without its type.
    pub stream_id: Option<Uuid>,
    /// Stable word of the event.
    pub event_type: Option<String>,
    /// Who sent the command, as in the log: `user:<id>`, `agent:<id>` or `system:<part>`.
    pub actor: Option<String>,
    /// What all that one cause led to has in common.
    pub correlation: Option<String>,
    /// Recorded at or after; positions are in the order of time, but for steps of the clock.
    pub from: Option<DateTime<Utc>>,
    /// Recorded before.
    pub to: Option<DateTime<Utc>>,
    /// At this position or after it.
    pub first: Option<i64>,
    /// At this position or before it.
    pub last: Option<i64>,
}

/// In which order events are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogOrder {
    /// From the newest back.
    NewestFirst,
    /// From the oldest on.
    OldestFirst,
}

/// Why a search found nothing.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// Too many events match a part of the filter, and too few all of it.
    #[error("too many events match only a part of the filter: narrow it by time, position or stream")]
    TooBroad,
    /// The database refused or did not answer.
    #[error("the log cannot be read: {0}")]
    Database(#[from] sqlx::Error),
}

/// At most `limit` events that `filter` wants, in this order. What is read does not grow with the log, but where the parts of
/// a filter match many events and all of them together few; such a search is given up after some seconds.
///
/// # Errors
/// [`SearchError`].
pub async fn search(
    pool: &PgPool,
    filter: &LogFilter,
    order: LogOrder,
    limit: i64,
) -> Result<Vec<RecordedEvent>, SearchError> {
    let (first, last) = positions(pool, filter).await?;
    let mut query = select(filter, first, last);
    // Of one stream, the sequence is the position's order, and has the index.
    let column = if filter.stream_id.is_some() { "sequence" } else { "position" };
    let direction = if order == LogOrder::NewestFirst { "DESC" } else { "ASC" };
    query.push(format!(" ORDER BY {column} {direction} LIMIT ")).push_bind(limit);
    // An index that has the order gives the first rows at once; anything else would read all that match.
    let begin = format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = '{PATIENCE}'; SET LOCAL enable_seqscan = off; \
         SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off"
    );
    let mut reading = pool.begin_with(begin).await?;
    let events = query.build_query_as().fetch_all(&mut *reading).await.map_err(given_up)?;
    reading.commit().await?;
    Ok(events)
}

/// The positions that `filter` spans.
async fn positions(pool: &PgPool, filter: &LogFilter) -> Result<(i64, i64), sqlx::Error> {
    let (mut first, mut last) = (filter.first.unwrap_or(1), filter.last.unwrap_or(i64::MAX));
    if let Some(from) = filter.from {
        first = first.max(position_before(pool, from).await? + 1);
    }
    if let Some(to) = filter.to {
        last = last.min(position_before(pool, to).await?);
    }
    Ok((first, last))
}

fn select(filter: &LogFilter, first: i64, last: i64) -> QueryBuilder<'_, Postgres> {
    let mut query = QueryBuilder::new(format!("{HEADER}, payload, metadata FROM events WHERE position >= "));
    query.push_bind(first).push(" AND position <= ").push_bind(last);
    let texts = [
        ("aggregate_type", &filter.stream_type),
        ("event_type", &filter.event_type),
        ("metadata->>'actor'", &filter.actor),
        ("metadata->>'correlation'", &filter.correlation),
    ];
    for (column, wanted) in texts {
        if let Some(wanted) = wanted {
            query.push(format!(" AND {column} = ")).push_bind(wanted);
        }
    }
    if let Some(id) = filter.stream_id {
        query.push(" AND aggregate_id = ").push_bind(id.to_string());
    }
    query
}

fn given_up(error: sqlx::Error) -> SearchError {
    match error.as_database_error().and_then(|error| error.code()) {
        Some(code) if code == CANCELED => SearchError::TooBroad,
        _ => error.into(),
    }
}
