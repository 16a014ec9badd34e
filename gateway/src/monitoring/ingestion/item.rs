//! Values as clients write them, and as the seam takes them.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, de};
use signalbox_domain::kernel::parse_time;
use utoipa::ToSchema;
use uuid::Uuid;

use crate::extract::{Numeric, id};

/// Longest text that is looked at as an id.
pub(crate) const MAX_ID: usize = 255;

/// A new datapoint.
#[derive(Debug, Deserialize, ToSchema)]
pub(crate) struct DatapointIn {
    /// A finite number.
    #[schema(value_type = f64)]
    pub(crate) value: Numeric<f64>,
    /// The event that the value belongs to.
    #[schema(value_type = String)]
    pub(crate) event_public_id: EventId,
    /// When it was measured, ISO 8601, UTC if no zone is given, at most ten minutes in the future; the time of arrival, if
    /// absent. Of several for one event in a batch, the last has that time, and each before it a microsecond less.
    #[schema(value_type = Option<String>)]
    #[serde(default)]
    pub(crate) timestamp: Option<Stamp>,
}

/// An event as a client names it; `None` when the text cannot be anybody's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EventId(pub(crate) Option<Uuid>);

/// A time as a client writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp(pub(crate) DateTime<Utc>);

/// A value on its way in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Item {
    /// Its channel; `None` when the sender names one that cannot exist.
    pub(crate) channel: Option<Uuid>,
    /// When it was measured; the time of arrival if the sender does not say.
    pub(crate) time: Option<DateTime<Utc>>,
    /// Finite.
    pub(crate) value: f64,
}

impl From<DatapointIn> for Item {
    fn from(datapoint: DatapointIn) -> Self {
        Self {
            channel: datapoint.event_public_id.0,
            time: datapoint.timestamp.map(|stamp| stamp.0),
            value: datapoint.value.get(),
        }
    }
}

struct TextVisitor<T>(&'static str, fn(&str) -> Option<T>);

impl<T> de::Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.1)(text).ok_or_else(|| E::invalid_value(de::Unexpected::Other("text"), &self))
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |text: &str| {
            let sane = text.len() <= MAX_ID && !text.contains('\0');
            sane.then(|| Self(id(text)))
        };
        deserializer.deserialize_str(TextVisitor("the id of an event", read))
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor("an ISO 8601 time", |text| parse_time(text).map(Self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_says_what_is_wrong_with_it() {
        let item = |text: &str| serde_json::from_str::<DatapointIn>(text);
        assert!(item(r#"{"value": 1, "event_public_id": "x"}"#).unwrap().event_public_id.0.is_none());
        for wrong in [
            r#"{"event_public_id": "x"}"#,
            r#"{"value": "x", "event_public_id": "x"}"#,
            r#"{"value": true, "event_public_id": "x"}"#,
            r#"{"value": null, "event_public_id": "x"}"#,
            r#"{"value": 1e400, "event_public_id": "x"}"#,
            r#"{"value": 1, "event_public_id": 5}"#,
            r#"{"value": 1, "event_public_id": "a\u0000b"}"#,
            r#"{"value": 1, "event_public_id": "x", "timestamp": "soon"}"#,
            r#"{"value": 1, "event_public_id": "x", "timestamp": 5}"#,
        ] {
            assert!(item(wrong).is_err(), "{wrong}");
        }
    }
}
