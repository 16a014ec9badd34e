use signalbox_boxed::boxed;
use sqlx::{FromRow, PgPool};

use crate::{RecordedEvent, UnreadableEvent};

/// The events of all aggregates of `aggregate_type` up to `position`, oldest first, without their metadata. All are held in
/// memory, so it is for types of which there are few.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn read_type(
    pool: &PgPool,
    aggregate_type: &str,
    position: i64,
) -> Result<Vec<Result<RecordedEvent, UnreadableEvent>>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload,
                'null'::jsonb AS metadata, recorded_at
           FROM events WHERE aggregate_type = $1 AND position <= $2 ORDER BY position",
    )
    .bind(aggregate_type)
    .bind(position)
    .fetch_all(pool)
    .await?;
    let read =
        |row| RecordedEvent::from_row(row).map_err(|error| UnreadableEvent::of(row, &error.to_string()));
    Ok(rows.iter().map(read).collect())
}
