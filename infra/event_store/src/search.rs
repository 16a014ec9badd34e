use signalbox_boxed::boxed;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{PgPool, Postgres, QueryBuilder};
use tokio::time::timeout;
use uuid::Uuid;

use crate::{
    RecordedEvent,
    index::{BLOCK, indexed, indexed_value},
    read::{HEADER, position_before},
    slice::LogSlice,
};

/// How long events of a rare combination are looked for before the search is given up.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);
/// PostgreSQL's code for a statement that was ended.
const CANCELED: &str = "57014";
/// Rows of the index that are read at a time.
const ENTRIES: i64 = 64;

/// Conditions of a search; `None` matches any value.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// Aggregate's type.
    pub stream_type: Option<String>,
    /// Aggregate's key; finds nothing without its type.
    pub stream_id: Option<Uuid>,
    /// Stable word of the event.
    pub event_type: Option<String>,
    /// The sender of the command, as in the log: `user:<id>`, `agent:<id>` or `system:<part>`.
    pub actor: Option<String>,
    /// The correlation that all events of one cause share.
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

/// At most `limit` events that match `filter`, in this order. The work does not grow with the log, except where each part of
/// a filter matches many events and all together few; such a search is given up after some seconds.
///
/// # Errors
/// [`SearchError`].
#[boxed]
pub async fn search(
    pool: &PgPool,
    filter: &LogFilter,
    order: LogOrder,
    limit: i64,
) -> Result<Vec<RecordedEvent>, SearchError> {
    let search = async {
        let (first, last) = positions(pool, filter).await?;
        Search { pool, filter, order, first, last, limit, found: Vec::new() }.run().await
    };
    timeout(SEARCH_TIMEOUT, search).await.map_err(|_| SearchError::TooBroad)?.map_err(given_up)
}

fn given_up(error: sqlx::Error) -> SearchError {
    match error.as_database_error().and_then(|error| error.code()) {
        Some(code) if code == CANCELED => SearchError::TooBroad,
        _ => error.into(),
    }
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

/// Indexed columns, and the value of each in `filter`; the most selective ones first.
fn conditions(filter: &LogFilter) -> [(&'static str, &'static str, Option<&str>); 4] {
    [
        ("correlation", "metadata->>'correlation'", filter.correlation.as_deref()),
        ("actor", "metadata->>'actor'", filter.actor.as_deref()),
        ("event_type", "event_type", filter.event_type.as_deref()),
        ("stream_type", "aggregate_type", filter.stream_type.as_deref()),
    ]
}

struct Search<'a> {
    pool: &'a PgPool,
    filter: &'a LogFilter,
    order: LogOrder,
    first: i64,
    last: i64,
    limit: i64,
    found: Vec<RecordedEvent>,
}

impl Search<'_> {
    async fn run(mut self) -> Result<Vec<RecordedEvent>, sqlx::Error> {
        let condition =
            conditions(self.filter).into_iter().find_map(|(field, _, value)| Some((field, value?)));
        // A stream has an index of its own.
        let Some((field, value)) = condition.filter(|_| self.filter.stream_id.is_none()) else {
            self.read_log(self.first, self.last).await?;
            return Ok(self.found);
        };
        // The index lags behind the log; newer events are read from the log.
        let indexed = indexed(self.pool).await?;
        let (first, last) = (self.first, self.last);
        if self.order == LogOrder::NewestFirst {
            self.read_log(first.max(indexed + 1), last).await?;
        }
        self.read_index(field, value, first, last.min(indexed)).await?;
        if self.order == LogOrder::OldestFirst {
            self.read_log(first.max(indexed + 1), last).await?;
        }
        Ok(self.found)
    }

    /// The number of events still missing.
    fn missing(&self) -> i64 {
        self.limit - self.found.len() as i64
    }

    fn direction(&self) -> &'static str {
        if self.order == LogOrder::NewestFirst { "DESC" } else { "ASC" }
    }

    /// Adds the matching events of the log from `first` to `last`.
    async fn read_log(&mut self, first: i64, last: i64) -> Result<(), sqlx::Error> {
        if first > last || self.missing() <= 0 {
            return Ok(());
        }
        // Of one stream, the sequence is in the order of positions, and has the index.
        let column = if self.filter.stream_id.is_some() { "sequence" } else { "position" };
        let mut query = self.select();
        query.push(" AND position >= ").push_bind(first).push(" AND position <= ").push_bind(last);
        query.push(format!(" ORDER BY {column} {} LIMIT ", self.direction())).push_bind(self.missing());
        // An index that has the order gives the first rows at once; anything else would read all that match.
        let begin = format!(
            "BEGIN READ ONLY; SET LOCAL statement_timeout = {}; SET LOCAL enable_seqscan = off; \
             SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off",
            SEARCH_TIMEOUT.as_millis()
        );
        let mut reading = signalbox_database::begin(self.pool, begin).await?;
        let rows = query.build().fetch_all(&mut *reading).await?;
        self.found.append(&mut LogSlice::of(&rows, false).events);
        reading.commit().await
    }

    /// Adds the matching events from `first` to `last` whose `field` is `value`.
    async fn read_index(
        &mut self,
        field: &str,
        value: &str,
        first: i64,
        last: i64,
    ) -> Result<(), sqlx::Error> {
        let (mut after, mut until) = (first.saturating_sub(BLOCK), last);
        let entries = format!(
            "SELECT first_position, positions FROM log_index
              WHERE field = $1 AND value = $2 AND first_position > $3 AND first_position <= $4
              ORDER BY first_position {} LIMIT $5",
            self.direction()
        );
        let value = indexed_value(value);
        while after < until && self.missing() > 0 {
            let query =
                sqlx::query_as(&entries).bind(field).bind(&value).bind(after).bind(until).bind(ENTRIES);
            let blocks: Vec<(i64, Vec<i64>)> = query.fetch_all(self.pool).await?;
            let reached = blocks.last().map(|(first_position, _)| *first_position);
            let is_all = (blocks.len() as i64) < ENTRIES;
            let positions = blocks.into_iter().flat_map(|(_, positions)| positions);
            self.take(positions.filter(|position| (first..=last).contains(position)).collect()).await?;
            match (reached, self.order) {
                (Some(reached), LogOrder::NewestFirst) if !is_all => until = reached - 1,
                (Some(reached), LogOrder::OldestFirst) if !is_all => after = reached,
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    /// Adds the matching events among those at `positions`.
    async fn take(&mut self, mut positions: Vec<i64>) -> Result<(), sqlx::Error> {
        positions.sort_unstable();
        if self.order == LogOrder::NewestFirst {
            positions.reverse();
        }
        let mut rest = positions.as_slice();
        while !rest.is_empty() && self.missing() > 0 {
            let (now, later) = rest.split_at(rest.len().min(self.missing() as usize));
            rest = later;
            let mut query = self.select();
            // Sorted here: if asked to sort, PostgreSQL may read the whole log in order and discard the other rows.
            query.push(" AND position = ANY(").push_bind(now).push(")");
            let rows = query.build().fetch_all(self.pool).await?;
            let mut events = LogSlice::of(&rows, false).events;
            events.sort_unstable_by_key(|event| event.position);
            if self.order == LogOrder::NewestFirst {
                events.reverse();
            }
            self.found.append(&mut events);
        }
        Ok(())
    }

    fn select<'q>(&self) -> QueryBuilder<'q, Postgres> {
        let mut query = QueryBuilder::new(format!("{HEADER}, payload, metadata FROM events WHERE true"));
        for (_, column, value) in conditions(self.filter) {
            if let Some(value) = value {
                query.push(format!(" AND {column} = ")).push_bind(value.to_owned());
            }
        }
        if let Some(id) = self.filter.stream_id {
            query.push(" AND aggregate_id = ").push_bind(id.to_string());
        }
        query
    }
}
