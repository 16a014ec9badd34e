use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
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
    source: Unread,
}

impl DecodeError {
    /// Whether a newer release has written the event: its programs can read it.
    pub fn is_newer(&self) -> bool {
        self.source.is_newer()
    }
}

/// Why an event cannot be read by this program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unread {
    /// It might fit the older shape, but for what the version adds.
    #[error("this program knows version {known} and no newer one")]
    NewerVersion { known: &'static str },
    #[error("this program does not know this kind of event: {0}")]
    UnknownKind(serde_json::Error),
    #[error(transparent)]
    Payload(serde_json::Error),
}

impl Unread {
    pub(crate) fn is_newer(&self) -> bool {
        !matches!(self, Self::Payload(_))
    }

    /// The reason of `error`, which reading an event of the kind `word` gave.
    pub(crate) fn of<D: Decider>(word: &str, error: serde_json::Error) -> Self {
        if version_of::<D>(word).is_none() { Self::UnknownKind(error) } else { Self::Payload(error) }
    }
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

    fn payload_as<D: Decider>(&self) -> Result<D::Event, Unread> {
        require_known_version::<D>(&self.event_type, &self.event_version)?;
        // Nearly always there is nothing to change, and so nothing to copy.
        let read = if has_steps(&self.aggregate_type, &self.event_type) {
            let mut payload = self.payload.clone();
            upcast_builtin(&self.aggregate_type, &self.event_type, &self.event_version, &mut payload);
            serde_json::from_value(payload)
        } else {
            D::Event::deserialize(&self.payload)
        };
        read.map_err(|error| Unread::of::<D>(&self.event_type, error))
    }
}

/// The version that this program writes of the kind `word`, if it knows it.
fn version_of<D: Decider>(word: &str) -> Option<&'static str> {
    KindOf::<D>::ALL.iter().find(|kind| kind.word() == word).map(|kind| kind.version())
}

/// Refuses an event of a newer version than this program writes.
pub(crate) fn require_known_version<D: Decider>(word: &str, version: &str) -> Result<(), Unread> {
    let Some(known) = version_of::<D>(word).filter(|known| *known != version) else { return Ok(()) };
    match (version.parse::<u32>(), known.parse::<u32>()) {
        (Ok(version), Ok(known)) if version <= known => Ok(()),
        _ => Err(Unread::NewerVersion { known }),
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
