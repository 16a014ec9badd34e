//! Ways into the log besides position and stream. They are written beside the log and after it, so that no append waits for
//! them: four more indexes on the log would make it a third slower.

use sqlx::PgPool;

/// Events that one row of the index speaks of at most.
pub(crate) const BLOCK: i64 = 1000;

/// Adds the events that are not in the index yet, at most a thousand; gives back whether there may be more. When two do it at
/// the same time, one of them has done nothing.
///
/// # Errors
/// The database's error; nothing has changed then.
pub async fn extend_index(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let first = indexed(pool).await?;
    let last: i64 = crate::head_position(pool).await?.min(first + BLOCK);
    if last <= first {
        return Ok(false);
    }
    // Readers sort positions themselves: sorted here, four texts of each event would have to be sorted with them, which takes
    // three quarters of the time.
    sqlx::query(
        "WITH moved AS (UPDATE log_index_progress SET position = $2 WHERE position = $1 RETURNING position)
         INSERT INTO log_index (field, value, first_position, positions)
         SELECT f.field, f.value, $1 + 1, array_agg(e.position)
           FROM moved, events e, LATERAL (VALUES ('stream_type', e.aggregate_type), ('event_type', e.event_type),
                ('actor', e.metadata->>'actor'), ('correlation', e.metadata->>'correlation')) AS f (field, value)
          WHERE e.position > $1 AND e.position <= $2 AND f.value IS NOT NULL
          GROUP BY f.field, f.value",
    )
    .bind(first)
    .bind(last)
    .execute(pool)
    .await?;
    Ok(last == first + BLOCK)
}

/// Position up to which events are in the index.
pub(crate) async fn indexed(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT position FROM log_index_progress").fetch_one(pool).await
}
