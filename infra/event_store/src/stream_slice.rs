//! Reads part of one aggregate's stream, for point-in-time queries.

use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{RecordedEvent, read::HEADER};

/// A selection of one aggregate's events.
#[derive(Debug, Clone, Copy)]
pub struct StreamSlice<'w> {
    /// The aggregate's type.
    pub aggregate_type: &'w str,
    /// Its key.
    pub id: Uuid,
    /// At this position or before it.
    pub until: i64,
    /// Words of the events that are left out.
    pub without: &'w [&'w str],
}

impl StreamSlice<'_> {
    /// At most `limit` of these events after version `version`, oldest first, without their metadata.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn read_after(
        &self,
        pool: &PgPool,
        version: i64,
        limit: i64,
    ) -> Result<Vec<RecordedEvent>, sqlx::Error> {
        sqlx::query_as(&format!(
            "{HEADER}, payload, 'null'::jsonb AS metadata FROM events
              WHERE aggregate_type = $1 AND aggregate_id = $2 AND sequence > $3 AND position <= $4 AND event_type <> ALL($5)
              ORDER BY sequence LIMIT $6"
        ))
        .bind(self.aggregate_type)
        .bind(self.id.to_string())
        .bind(version)
        .bind(self.until)
        .bind(self.without)
        .bind(limit)
        .fetch_all(pool)
        .await
    }

    /// Of the events that are left out, the newest of each word, oldest first, without their metadata.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn newest_left_out(&self, pool: &PgPool) -> Result<Vec<RecordedEvent>, sqlx::Error> {
        if self.without.is_empty() {
            return Ok(Vec::new());
        }
        sqlx::query_as(
            "SELECT newest.* FROM unnest($4) AS left_out (word) CROSS JOIN LATERAL (
                 SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version, recorded_at, payload,
                        'null'::jsonb AS metadata
                   FROM events
                  WHERE aggregate_type = $1 AND aggregate_id = $2 AND position <= $3 AND event_type = left_out.word
                  ORDER BY sequence DESC LIMIT 1) AS newest
              ORDER BY position",
        )
        .bind(self.aggregate_type)
        .bind(self.id.to_string())
        .bind(self.until)
        .bind(self.without)
        .fetch_all(pool)
        .await
    }
}

/// The first `limit` events of one aggregate whose words are `event_types`, oldest first.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_kinds(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
    event_types: &[&str],
    limit: i64,
) -> Result<Vec<RecordedEvent>, sqlx::Error> {
    sqlx::query_as(&format!(
        "{HEADER}, payload, metadata FROM events
          WHERE aggregate_type = $1 AND aggregate_id = $2 AND event_type = ANY($3) ORDER BY sequence LIMIT $4"
    ))
    .bind(aggregate_type)
    .bind(id.to_string())
    .bind(event_types)
    .bind(limit)
    .fetch_all(pool)
    .await
}

/// When the event at `position` was recorded; `None` if there is no such event.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn time_of(pool: &PgPool, position: i64) -> Result<Option<DateTime<Utc>>, sqlx::Error> {
    sqlx::query_scalar("SELECT recorded_at FROM events WHERE position = $1")
        .bind(position)
        .fetch_optional(pool)
        .await
}

/// Position of the event that brought one aggregate to `version`; `None` if there is no such event.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn version_position(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
    version: i64,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "SELECT position FROM events WHERE aggregate_type = $1 AND aggregate_id = $2 AND sequence = $3",
    )
    .bind(aggregate_type)
    .bind(id.to_string())
    .bind(version)
    .fetch_optional(pool)
    .await
}
