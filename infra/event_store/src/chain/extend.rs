use chrono::{DateTime, Utc};
use signalbox_boxed::boxed;
use sqlx::PgPool;

use super::{
    hash::{Hash, LENGTH, read_columns},
    head::chain_head,
};

/// Why the chain was not extended.
#[derive(Debug, thiserror::Error)]
pub enum ChainError {
    /// The database refused or did not answer.
    #[error("the hash chain cannot be written: {0}")]
    Database(#[from] sqlx::Error),
    /// The log skips a position, which appends never cause.
    #[error(
        "the log has a gap: position {after} is followed by {found}; `signalbox log verify` reports more"
    )]
    Gap {
        /// Position read last.
        after: i64,
        /// Position found next.
        found: i64,
    },
}

/// Chains the events that are not chained yet, at most `limit`; returns how many. When two do it at the same time, one of
/// them has done nothing.
///
/// # Errors
/// [`ChainError`]; nothing was written then.
#[boxed]
pub async fn extend_chain(pool: &PgPool, now: DateTime<Utc>, limit: i64) -> Result<usize, ChainError> {
    let (position, mut hash) = match chain_head(pool).await? {
        Some(head) => (head.position, head.hash),
        None => (0, Hash::START),
    };
    let events = read_columns(pool, position, i64::MAX, limit).await?;
    let mut hashes = Vec::with_capacity(events.len() * LENGTH);
    for (event, expected) in events.iter().zip(position + 1..) {
        if event.position != expected {
            return Err(ChainError::Gap { after: expected - 1, found: event.position });
        }
        hash = hash.then(event);
        hashes.extend_from_slice(hash.as_bytes());
    }
    let (Some(first), Some(last)) = (events.first(), events.last()) else { return Ok(0) };
    let written = sqlx::query(
        "INSERT INTO log_chain (first_position, last_position, hashes, written_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT DO NOTHING",
    )
    .bind(first.position)
    .bind(last.position)
    .bind(&hashes)
    .bind(now)
    .execute(pool)
    .await?;
    Ok(if written.rows_affected() == 0 { 0 } else { events.len() })
}
