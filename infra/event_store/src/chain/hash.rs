use std::fmt;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::{FromRow, PgExecutor};

/// Length of a hash in bytes.
pub(super) const LENGTH: usize = 32;
/// Comes first in what is hashed, so that these hashes are of nothing else.
const DOMAIN: &[u8] = b"signalbox event 1\n";

/// The hash of an event and of all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hash([u8; LENGTH]);

/// All columns of an event, as they stand in the table.
#[derive(Debug, Clone, FromRow)]
pub(super) struct Columns {
    pub(super) position: i64,
    aggregate_type: String,
    aggregate_id: String,
    sequence: i64,
    event_type: String,
    event_version: String,
    payload: String,
    metadata: String,
    recorded_at: DateTime<Utc>,
}

impl Hash {
    /// What comes before the first event.
    pub(super) const START: Self = Self([0; LENGTH]);

    /// The hash of the event that comes after this one, if it stands at `position`. Texts go with their lengths, so that no two
    /// events give the same bytes.
    pub(super) fn then_at(self, position: i64, event: &Columns) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(DOMAIN);
        hasher.update(self.0);
        for number in [position, event.sequence, event.recorded_at.timestamp_micros()] {
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
            hasher.update(text.as_bytes());
        }
        Self(hasher.finalize().into())
    }

    /// The hash of the event that comes after this one.
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
                payload::text AS payload, metadata::text AS metadata, recorded_at
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
            aggregate_type: "user".to_owned(),
            aggregate_id: "01900000-0000-7000-8000-000000000001".to_owned(),
            sequence: 2,
            event_type: "user_renamed".to_owned(),
            event_version: "1".to_owned(),
            payload: r#"{"to": "ä"}"#.to_owned(),
            metadata: r#"{"actor": "system:test"}"#.to_owned(),
            recorded_at: DateTime::from_timestamp_micros(1_760_000_000_123_456).unwrap(),
        };
        let hash = Hash::START.then(&event).to_string();
        assert_eq!(hash, "51584307f0b9ab10db726f029ed03d9f3373a2b15274487dcf7e964a947683a8");
    }
}
