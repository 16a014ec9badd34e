use serde::{Deserialize, Serialize};

use crate::kernel::{ChannelId, Rejection, clean_text, present, required_text};

/// Longest id of a plugin's channel, in characters.
pub const MAX_ID: usize = 100;
/// Longest name of a plugin's channel, in characters.
pub const MAX_NAME: usize = 255;
/// Longest unit, in characters.
pub const MAX_UNIT: usize = 50;

/// Which way values go, as the plugin sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The device is read.
    Input,
    /// The device is written.
    Output,
    /// Both.
    Bidirectional,
}

impl Direction {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Output => "output",
            Self::Bidirectional => "bidirectional",
        }
    }
}

/// A channel of a plugin instance, and the event that it feeds or obeys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingSpec {
    /// The plugin's own key for the channel; unique within the instance, 1–100 characters.
    pub channel_id: String,
    /// Display name, 1–255 characters.
    pub channel_name: String,
    /// Which way values go.
    pub direction: Direction,
    /// Unit of its values; may be empty.
    pub unit: String,
    /// The linked channel of the service.
    pub event: Option<ChannelId>,
}

/// Changes of a mapping; absent fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingChanges {
    /// New name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel_name: Option<String>,
    /// New direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// New unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// Another linked channel; `Some(None)` unlinks.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub event: Option<Option<ChannelId>>,
}

impl MappingSpec {
    pub(super) fn validate(self) -> Result<Self, Rejection> {
        Ok(Self {
            channel_id: required_text("channel_id", &self.channel_id, MAX_ID)?,
            channel_name: required_text("channel_name", &self.channel_name, MAX_NAME)?,
            unit: valid_unit(&self.unit)?,
            ..self
        })
    }

    pub(super) fn with(&self, changes: MappingChanges) -> Self {
        Self {
            channel_id: self.channel_id.clone(),
            channel_name: changes.channel_name.unwrap_or_else(|| self.channel_name.clone()),
            direction: changes.direction.unwrap_or(self.direction),
            unit: changes.unit.unwrap_or_else(|| self.unit.clone()),
            event: changes.event.unwrap_or(self.event),
        }
    }
}

impl MappingChanges {
    /// The difference between `from` and `to`. A channel that was named is always included: it may have been deleted
    /// since, and the aggregate is not notified of that.
    pub(super) fn between(from: &MappingSpec, to: MappingSpec, event: Option<Option<ChannelId>>) -> Self {
        Self {
            channel_name: (to.channel_name != from.channel_name).then_some(to.channel_name),
            direction: (to.direction != from.direction).then_some(to.direction),
            unit: (to.unit != from.unit).then_some(to.unit),
            event,
        }
    }
}

fn valid_unit(unit: &str) -> Result<String, Rejection> {
    clean_text(unit, MAX_UNIT).map_err(|error| Rejection::field("unit", error))
}
