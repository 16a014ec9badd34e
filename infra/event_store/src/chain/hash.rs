use std::fmt;

use sha2::{Digest, Sha256};
use sqlx::{FromRow, PgExecutor, Row, ValueRef, postgres::PgRow};

/// Length of a hash in bytes.
pub(super) const LENGTH: usize = 32;
/// Prefix of the hashed bytes; separates these hashes from all others.
const DOMAIN: &[u8] = b"signalbox event 1\n";

/// The hash of an event and of all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; LENGTH]);

/// From PostgreSQL's epoch, 2000-01-01, to that of Unix, in microseconds.
const EPOCH: i64 = 946_684_800_000_000;

/// All columns of an event, as the bytes stored in the table: every event can be hashed, whether or not this program
/// can read it.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    pub(super) position: i64,
    aggregate_type: Vec<u8>,
    aggregate_id: Vec<u8>,
    sequence: i64,
    event_type: Vec<u8>,
    event_version: Vec<u8>,
    payload: Vec<u8>,
    metadata: Vec<u8>,
    /// Microseconds since the epoch of Unix.
    recorded_at: i64,
}

impl FromRow<'_, PgRow> for Columns {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let bytes = |column: &str| -> Result<Vec<u8>, sqlx::Error> {
            let value = row.try_get_raw(column)?;
            let bytes = if value.is_null() { Ok(&b""[..]) } else { value.as_bytes() };
            bytes.map(<[u8]>::to_vec).map_err(sqlx::Error::Decode)
        };
        // Infinity and times outside of any calendar are hashed as PostgreSQL sends them.
        let time = bytes("recorded_at")?;
        let time = time.try_into().map_err(|_| sqlx::Error::Decode("a time has eight bytes".into()))?;
        Ok(Self {
            position: row.try_get("position")?,
            aggregate_type: bytes("aggregate_type")?,
            aggregate_id: bytes("aggregate_id")?,
            sequence: row.try_get("sequence")?,
            event_type: bytes("event_type")?,
            event_version: bytes("event_version")?,
            payload: bytes("payload")?,
            metadata: bytes("metadata")?,
            recorded_at: i64::from_be_bytes(time).wrapping_add(EPOCH),
        })
    }
}

impl Hash {
    /// The hash before the first event.
    pub(super) const START: Self = Self([0; LENGTH]);

    /// The hash of `event`, which follows this one, at `position`. Texts are prefixed with their lengths, so that no
    /// two events yield the same bytes.
    pub(super) fn then_at(self, position: i64, event: &Columns) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        hasher.update(self.0);
        for number in [position, event.sequence, event.recorded_at] {
            hasher.update(number.to_be_bytes());
        }
        let texts = [
            &event.aggregate_type,
            &event.aggregate_id,
            &event.event_type,
            &event.event_version,
            &event.payload,
            &event.metadata,
        ];
        for text in texts {
            hasher.update((text.len() as u64).to_be_bytes());
            hasher.update(text);
        }
        Self(hasher.finalize().into())
    }

    /// The hash of `event`, which follows this one.
    pub(super) fn then(self, event: &Columns) -> Self {
        self.then_at(event.position, event)
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// From exactly 32 bytes.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// At most `limit` events after `position` up to `last`, in order.
pub(super) async fn read_columns(
    executor: impl PgExecutor<'_>,
    position: i64,
    last: i64,
    limit: i64,
) -> Result<Vec<Columns>, sqlx::Error> {
    sqlx::query_as(
        "SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version,
                payload::text AS payload, metadata::text AS metadata, timestamptz_send(recorded_at) AS recorded_at
           FROM events WHERE position > $1 AND position <= $2 ORDER BY position LIMIT $3",
    )
    .bind(position)
    .bind(last)
    .bind(limit)
    .fetch_all(executor)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published heads are compared with hashes that are made years later: this one never changes.
    #[test]
    fn the_hash_of_an_event_stays_the_same_for_ever() {
        let event = Columns {
            position: 1,
            aggregate_type: b"user".to_vec(),
            aggregate_id: b"01900000-0000-7000-8000-000000000001".to_vec(),
            sequence: 2,
            event_type: b"user_renamed".to_vec(),
            event_version: b"1".to_vec(),
            payload: r#"{"to": "ä"}"#.as_bytes().to_vec(),
            metadata: br#"{"actor": "system:test"}"#.to_vec(),
            recorded_at: 1_760_000_000_123_456,
        };
        let hash = Hash::START.then(&event).to_string();
        assert_eq!(hash, "51584307f0b9ab10db726f029ed03d9f3373a2b15274487dcf7e964a947683a8");
    }
}
