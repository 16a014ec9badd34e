//! Values on their way in, over HTTP and sockets: read, checked against the catalog, encoded, sent to the log.

use std::{collections::HashSet, fmt};

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, de};
use sha2::{Digest, Sha256};
use signalbox_datapoint_log::{ChunkPoint, Origin, Point, codec::encode_block, micros};
use signalbox_domain::kernel::{UserId, parse_time};
use signalbox_messaging::IngestMessage;
use signalbox_projections::monitoring::series::Datapoint;
use utoipa::ToSchema;
use uuid::Uuid;

use super::catalog::Catalog;
use crate::{
    auth::{Credential, CurrentUser},
    extract::{Numeric, id},
    problem::Problem,
    state::State,
};

/// How far in the future a device's clock may be.
const AHEAD: TimeDelta = TimeDelta::minutes(10);
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
    /// absent.
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

/// An item that was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    UnknownEvent,
    TooFarAhead,
    BeforeTheEpoch,
}

impl Refusal {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::UnknownEvent => "unknown event",
            Self::TooFarAhead => "timestamp is more than 10 minutes in the future",
            Self::BeforeTheEpoch => "timestamp is before 1970",
        }
    }
}

/// What became of a batch: points to be recorded, and the indexes of the others.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) points: Vec<Point>,
    pub(crate) refused: Vec<(usize, Refusal)>,
}

/// Checks items that arrive at `now`.
pub(crate) async fn check(
    state: &State,
    items: &[DatapointIn],
    now: DateTime<Utc>,
) -> Result<Checked, Problem> {
    let catalog = state.catalogs.fresh(state).await?;
    let ids: HashSet<Uuid> = items.iter().filter_map(|item| item.event_public_id.0).collect();
    let is_known = |id: &Uuid| catalog.live_channel(*id).is_some();
    let catalog = if ids.iter().all(is_known) { catalog } else { state.catalogs.newest(state).await? };
    let known: HashSet<Uuid> = ids.into_iter().filter(|id| catalog.live_channel(*id).is_some()).collect();
    if known.is_empty() {
        return Ok(check_with(&catalog, items, &known, now));
    }
    let living = state.living_channels.among(&state.pool, &known).await?;
    Ok(check_with(&catalog, items, &living, now))
}

/// Checks items against the channels that are known to the catalog and are among `living`.
fn check_with(
    catalog: &Catalog,
    items: &[DatapointIn],
    living: &HashSet<Uuid>,
    now: DateTime<Utc>,
) -> Checked {
    let mut checked = Checked { points: Vec::with_capacity(items.len()), refused: Vec::new() };
    for (index, item) in items.iter().enumerate() {
        let id = item.event_public_id.0.filter(|id| living.contains(id));
        let channel = id.and_then(|id| catalog.live_channel(id));
        let time = item.timestamp.map_or(now, |stamp| stamp.0);
        match channel {
            _ if time > now + AHEAD => checked.refused.push((index, Refusal::TooFarAhead)),
            _ if time < DateTime::UNIX_EPOCH => checked.refused.push((index, Refusal::BeforeTheEpoch)),
            None => checked.refused.push((index, Refusal::UnknownEvent)),
            Some(channel) => checked.points.push(Point {
                channel: channel.number,
                time: micros(time),
                value: item.value.get(),
            }),
        }
    }
    checked
}

/// Names the batch of `items` that `sender` calls `key`: it is the same one whenever and on whatever way it comes again.
pub(crate) fn batch_id(sender: UserId, key: &str, items: &[DatapointIn]) -> Uuid {
    let mut hasher = Sha256::new();
    hasher.update(key);
    for item in items {
        hasher.update(b"\0");
        hasher.update(item.value.get().to_le_bytes());
        hasher.update(item.event_public_id.0.unwrap_or_default());
        hasher.update(item.timestamp.map_or(i64::MIN, |stamp| micros(stamp.0)).to_le_bytes());
    }
    Uuid::new_v5(&sender.0, &hasher.finalize())
}

/// Appends `points` to the log as batch `id`; gives back the first of them with its place.
pub(crate) async fn record(
    state: &State,
    user: &CurrentUser,
    id: Uuid,
    mut points: Vec<Point>,
) -> Result<Datapoint, Problem> {
    state.reach_bus().await?;
    let block = encode_block(origin(user), &mut points);
    let message = IngestMessage { batch_id: id, points: points.len() as u32, block: Bytes::from(block) };
    let outcome = state.bus.ingest(&message).await?;
    let first = points.first().copied().ok_or_else(|| Problem::field("datapoints", "must not be empty"))?;
    let point = ChunkPoint {
        time: first.time,
        value: first.value,
        position: outcome.position,
        index: outcome.first_index,
    };
    Ok(Datapoint { channel: first.channel, day: outcome.day, point })
}

fn origin(user: &CurrentUser) -> Origin {
    match user.credential {
        Credential::ApiToken(token) => Origin::Token(token),
        Credential::Session(_) => Origin::User(user.id.0),
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
