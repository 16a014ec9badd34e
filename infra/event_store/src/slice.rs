use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::{FromRow, Row, postgres::PgRow};
use uuid::Uuid;

use crate::RecordedEvent;

/// A range of the log, as far as this program can read it. An event that it cannot read does not hide the others.
#[derive(Debug, Clone)]
pub struct LogSlice<J = Value> {
    /// The readable events, in order.
    pub events: Vec<RecordedEvent<J>>,
    /// The others, in order.
    pub unreadable: Vec<UnreadableEvent>,
    /// Whether the log may continue after this range.
    pub is_full: bool,
}

/// Identity of an event; known also if its payload cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventKey {
    /// Position in the log.
    pub position: i64,
    /// Type of the aggregate.
    pub aggregate_type: String,
    /// Id of the aggregate, as it is stored.
    pub aggregate_id: String,
    /// Place in the stream, from 1.
    pub sequence: i64,
    /// Word of the event.
    pub event_type: String,
}

/// An event that this program cannot read: it decodes neither as a row nor as JSON, or the server cannot return it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableEvent {
    /// Which event it is.
    pub key: EventKey,
    /// Why it cannot be read.
    pub error: String,
}

impl EventKey {
    /// The aggregate's id, if it is one.
    pub fn id(&self) -> Option<Uuid> {
        Uuid::parse_str(&self.aggregate_id).ok()
    }

    pub(crate) fn of(row: &PgRow) -> Self {
        let text = |column: &str| row.try_get(column).unwrap_or_default();
        Self {
            position: row.try_get("position").unwrap_or_default(),
            aggregate_type: text("aggregate_type"),
            aggregate_id: text("aggregate_id"),
            sequence: row.try_get("sequence").unwrap_or_default(),
            event_type: text("event_type"),
        }
    }
}

impl<J> From<&RecordedEvent<J>> for EventKey {
    fn from(event: &RecordedEvent<J>) -> Self {
        Self {
            position: event.position,
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.to_string(),
            sequence: event.sequence,
            event_type: event.event_type.clone(),
        }
    }
}

impl UnreadableEvent {
    pub(crate) fn of(row: &PgRow, error: &str) -> Self {
        Self { key: EventKey::of(row), error: error.to_owned() }
    }
}

impl<J> LogSlice<J> {
    /// How many events there are.
    pub fn count(&self) -> usize {
        self.events.len() + self.unreadable.len()
    }

    /// All events, in order.
    pub fn keys(&self) -> Vec<EventKey> {
        let mut keys: Vec<_> = self.events.iter().map(EventKey::from).collect();
        keys.extend(self.unreadable.iter().map(|event| event.key.clone()));
        keys.sort_unstable_by_key(|key| key.position);
        keys
    }

    /// Position of the last event.
    pub fn last(&self) -> Option<i64> {
        let readable = self.events.last().map(|event| event.position);
        readable.max(self.unreadable.last().map(|event| event.key.position))
    }

    /// The first missing position after `after`, with the position that follows instead.
    pub fn gap(&self, after: i64) -> Option<(i64, i64)> {
        let mut positions: Vec<_> = self.events.iter().map(|event| event.position).collect();
        positions.extend(self.unreadable.iter().map(|event| event.key.position));
        positions.sort_unstable();
        let gap = positions.into_iter().zip(after + 1..).find(|(found, expected)| found != expected);
        gap.map(|(found, expected)| (expected, found))
    }
}

impl<J: DeserializeOwned + Send + Unpin + 'static> LogSlice<J> {
    pub(crate) fn of(rows: &[PgRow], is_full: bool) -> Self {
        let (mut events, mut unreadable) = (Vec::with_capacity(rows.len()), Vec::new());
        for row in rows {
            match RecordedEvent::from_row(row) {
                Ok(event) => events.push(event),
                Err(error) => unreadable.push(UnreadableEvent::of(row, &error.to_string())),
            }
        }
        Self { events, unreadable, is_full }
    }
}
