use chrono::{DateTime, Utc};
use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, Error as _},
};
use serde_json::Value;
use signalbox_domain::kernel::{Decider, EventKind, KindOf};
use sqlx::{FromRow, Row, postgres::PgRow, types::Json};
use uuid::Uuid;

use crate::upcast::{has_steps, upcast_builtin};

/// An event of the log; its documents as values, or as text (`J` = `Box<RawValue>`) for callers that only pass them
/// on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedEvent<J = Value> {
    /// Gapless place in the log, from 1.
    pub position: i64,
    /// Aggregate's type, e.g. `transfer`.
    pub aggregate_type: String,
    /// Aggregate's key.
    pub aggregate_id: Uuid,
    /// Place in the aggregate's stream, from 1; equals the aggregate's version after the event.
    pub sequence: i64,
    /// Stable word of the event.
    pub event_type: String,
    /// Version of the payload's shape when it was written.
    pub event_version: String,
    /// The event itself.
    pub payload: J,
    /// See [`signalbox_domain::kernel::Metadata`].
    pub metadata: J,
    /// When it was appended.
    pub recorded_at: DateTime<Utc>,
}

/// An event that this program cannot read.
#[derive(Debug, thiserror::Error)]
#[error("event {position} ({aggregate_type} {event_type} v{event_version}) cannot be read: {source}")]
pub struct DecodeError {
    position: i64,
    aggregate_type: String,
    event_type: String,
    event_version: String,
    source: serde_json::Error,
}

impl RecordedEvent {
    /// The typed event of aggregate `D`, brought up to its newest version.
    ///
    /// # Errors
    /// [`DecodeError`] when the payload does not fit.
    pub fn decode<D: Decider>(&self) -> Result<D::Event, DecodeError> {
        self.payload_as::<D>().map_err(|source| DecodeError {
            position: self.position,
            aggregate_type: self.aggregate_type.clone(),
            event_type: self.event_type.clone(),
            event_version: self.event_version.clone(),
            source,
        })
    }

    fn payload_as<D: Decider>(&self) -> Result<D::Event, serde_json::Error> {
        require_known_version::<D>(&self.event_type, &self.event_version)?;
        // Nearly always there is nothing to change, and so nothing to copy.
        if !has_steps(&self.aggregate_type, &self.event_type) {
            return D::Event::deserialize(&self.payload);
        }
        let mut payload = self.payload.clone();
        upcast_builtin(&self.aggregate_type, &self.event_type, &self.event_version, &mut payload);
        serde_json::from_value(payload)
    }
}

/// Refuses an event of a newer version than this program writes: it might fit the older shape, but for what the version adds.
pub(crate) fn require_known_version<D: Decider>(word: &str, version: &str) -> Result<(), serde_json::Error> {
    let known = KindOf::<D>::ALL.iter().find(|kind| kind.word() == word).map(|kind| kind.version());
    let Some(known) = known.filter(|known| *known != version) else { return Ok(()) };
    match (version.parse::<u32>(), known.parse::<u32>()) {
        (Ok(version), Ok(known)) if version <= known => Ok(()),
        _ => Err(serde_json::Error::custom(format!("this program knows version {known} and no newer one"))),
    }
}

impl<J: DeserializeOwned + 'static> FromRow<'_, PgRow> for RecordedEvent<J> {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let id: &str = row.try_get("aggregate_id")?;
        let aggregate_id = Uuid::parse_str(id).map_err(|error| sqlx::Error::Decode(error.into()))?;
        Ok(Self {
            position: row.try_get("position")?,
            aggregate_type: row.try_get("aggregate_type")?,
            aggregate_id,
            sequence: row.try_get("sequence")?,
            event_type: row.try_get("event_type")?,
            event_version: row.try_get("event_version")?,
            payload: row.try_get::<Json<J>, _>("payload")?.0,
            metadata: row.try_get::<Json<J>, _>("metadata")?.0,
            recorded_at: row.try_get("recorded_at")?,
        })
    }
}
