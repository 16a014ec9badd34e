//! Ways into the log besides position and stream. They are written beside the log and after it, so that no append waits for
//! them: four more indexes on the log would make it a third slower.

use sha2::{Digest, Sha256};
use signalbox_boxed::boxed;
use signalbox_database::is_refusal;
use sqlx::PgPool;

/// Events that one row of the index speaks of at most.
pub(crate) const BLOCK: i64 = 1000;

/// Bytes of a value that an index entry holds as it is; of a longer one it holds the beginning and the digest.
const MAX_VALUE: usize = 1000;

/// The index entry of a value.
pub(crate) fn indexed_value(value: &str) -> String {
    if value.len() <= MAX_VALUE {
        return value.to_owned();
    }
    let beginning: String = value.chars().take(100).collect();
    let digest = Sha256::digest(value.as_bytes());
    digest.iter().fold(format!("{beginning}:"), |text, byte| format!("{text}{byte:02x}"))
}

/// Adds the events that are not in the index yet, at most a thousand; returns whether there may be more. When two do it at
/// the same time, one of them has done nothing.
///
/// # Errors
/// The database's error; nothing has changed then.
#[boxed]
pub async fn extend_index(pool: &PgPool) -> Result<bool, sqlx::Error> {
    let first = indexed(pool).await?;
    let head = crate::head_position(pool).await?;
    let mut last = head.min(first + BLOCK);
    if last <= first {
        return Ok(false);
    }
    loop {
        match extend(pool, first, last, ALL_FIELDS).await {
            // One event is the cause: those before it are indexed without it, and it without its metadata.
            Err(error) if is_refusal(&error) && last > first + 1 => last = first + (last - first) / 2,
            Err(error) if is_refusal(&error) => {
                tracing::error!(%error, position = last, "the metadata of an event cannot be indexed");
                extend(pool, first, last, HEADER_FIELDS).await?;
                break;
            }
            extended => {
                extended?;
                break;
            }
        }
    }
    Ok(last < head)
}

/// The indexed fields of an event, with and without its metadata.
const ALL_FIELDS: &str = "('stream_type', e.aggregate_type), ('event_type', e.event_type),
                ('actor', e.metadata->>'actor'), ('correlation', e.metadata->>'correlation')";
const HEADER_FIELDS: &str = "('stream_type', e.aggregate_type), ('event_type', e.event_type)";

async fn extend(pool: &PgPool, first: i64, last: i64, fields: &str) -> Result<(), sqlx::Error> {
    // Readers sort positions themselves: sorted here, four texts of each event would have to be sorted with them, which takes
    // three quarters of the time.
    sqlx::query(&format!(
        "WITH moved AS (UPDATE log_index_progress SET position = $2 WHERE position = $1 RETURNING position)
         INSERT INTO log_index (field, value, first_position, positions)
         SELECT f.field, CASE WHEN octet_length(f.value) <= {MAX_VALUE} THEN f.value
                ELSE left(f.value, 100) || ':' || encode(sha256(convert_to(f.value, 'UTF8')), 'hex') END,
                $1 + 1, array_agg(e.position)
           FROM moved, events e, LATERAL (VALUES {fields}) AS f (field, value)
          WHERE e.position > $1 AND e.position <= $2 AND f.value IS NOT NULL
          GROUP BY 1, 2"
    ))
    .bind(first)
    .bind(last)
    .execute(pool)
    .await?;
    Ok(())
}

/// Position up to which events are in the index.
pub(crate) async fn indexed(pool: &PgPool) -> Result<i64, sqlx::Error> {
    sqlx::query_scalar("SELECT position FROM log_index_progress").fetch_one(pool).await
}
