use serde::{Deserialize, Serialize};

use crate::kernel::{ChannelId, Rejection, WidgetId, clean_text, present, required_text};

/// Longest title, in characters.
pub const MAX_TITLE: usize = 255;
/// Longest configuration, in characters.
pub const MAX_CONFIG: usize = 10_000;
/// Farthest place from the grid's origin, in cells.
pub const MAX_PLACE: i32 = 10_000;
/// Largest width and height, in cells.
pub const MAX_SIZE: i32 = 12;

/// How a widget shows its channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WidgetType {
    /// A line over time.
    LineChart,
    /// A pointer on a scale.
    Gauge,
    /// The newest value, large.
    StatCard,
    /// A switch.
    ActuatorToggle,
}

impl WidgetType {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LineChart => "line_chart",
            Self::Gauge => "gauge",
            Self::StatCard => "stat_card",
            Self::ActuatorToggle => "actuator_toggle",
        }
    }

    /// The type that clients call `word`.
    pub fn parse(word: &str) -> Option<Self> {
        use WidgetType::{ActuatorToggle, Gauge, LineChart, StatCard};
        [LineChart, Gauge, StatCard, ActuatorToggle].into_iter().find(|known| known.as_str() == word)
    }
}

/// The content and the position of a widget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WidgetSpec {
    /// How it shows it.
    #[serde(rename = "widget_type")]
    pub kind: WidgetType,
    /// Heading, 1–255 characters.
    pub title: String,
    /// The channel shown, if any.
    pub channel: Option<ChannelId>,
    /// Column, from 0.
    pub x: i32,
    /// Row, from 0.
    pub y: i32,
    /// Columns covered, 1–12.
    pub w: i32,
    /// Rows covered, 1–12.
    pub h: i32,
    /// Opaque settings of the client.
    pub config: Option<String>,
}

/// A widget that is restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedWidget {
    /// Its key.
    pub widget: WidgetId,
    /// Position in the log of its adding, which orders a dashboard's widgets.
    pub added_at: i64,
    #[serde(flatten)]
    pub spec: WidgetSpec,
}

/// Changes of a widget; absent fields stay unchanged, `Some(None)` clears.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WidgetChanges {
    /// New heading.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// New channel.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub channel: Option<Option<ChannelId>>,
    /// New column.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<i32>,
    /// New row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<i32>,
    /// New width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub w: Option<i32>,
    /// New height.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub h: Option<i32>,
    /// New configuration.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub config: Option<Option<String>>,
}

impl WidgetSpec {
    /// This widget after `changes`.
    #[must_use]
    pub fn with(self, changes: WidgetChanges) -> Self {
        Self {
            kind: self.kind,
            title: changes.title.unwrap_or(self.title),
            channel: changes.channel.unwrap_or(self.channel),
            x: changes.x.unwrap_or(self.x),
            y: changes.y.unwrap_or(self.y),
            w: changes.w.unwrap_or(self.w),
            h: changes.h.unwrap_or(self.h),
            config: changes.config.unwrap_or(self.config),
        }
    }

    pub(super) fn validate(self) -> Result<Self, Rejection> {
        let title = required_text("title", &self.title, MAX_TITLE)?;
        let config = self.config.map(|text| valid_config(&text)).transpose()?;
        within("x", self.x, 0, MAX_PLACE)?;
        within("y", self.y, 0, MAX_PLACE)?;
        within("w", self.w, 1, MAX_SIZE)?;
        within("h", self.h, 1, MAX_SIZE)?;
        Ok(Self { title, config, ..self })
    }
}

impl WidgetChanges {
    /// The changes that turn `from` into `to`. The channel is included only when it was named, because it may have
    /// been unlinked since.
    pub(super) fn between(from: &WidgetSpec, to: &WidgetSpec, channel: Option<Option<ChannelId>>) -> Self {
        fn new<T: Clone + PartialEq>(from: &T, to: &T) -> Option<T> {
            (from != to).then(|| to.clone())
        }
        Self {
            title: new(&from.title, &to.title),
            channel,
            x: new(&from.x, &to.x),
            y: new(&from.y, &to.y),
            w: new(&from.w, &to.w),
            h: new(&from.h, &to.h),
            config: new(&from.config, &to.config),
        }
    }
}

fn valid_config(text: &str) -> Result<String, Rejection> {
    clean_text(text, MAX_CONFIG).map_err(|error| Rejection::field("config_json", error))
}

fn within(field: &str, value: i32, least: i32, most: i32) -> Result<(), Rejection> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Rejection::field(field, format!("must be between {least} and {most}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> WidgetSpec {
        WidgetSpec {
            kind: WidgetType::Gauge,
            title: "Boiler".into(),
            channel: None,
            x: 0,
            y: 0,
            w: 4,
            h: 3,
            config: None,
        }
    }

    #[test]
    fn only_what_fits_into_the_grid_is_taken() {
        let far = WidgetSpec { x: 10_000, y: 10_000, w: 12, h: 12, ..spec() };
        assert_eq!(far.clone().validate(), Ok(far));
        let wrong = [
            WidgetSpec { x: -1, ..spec() },
            WidgetSpec { y: 10_001, ..spec() },
            WidgetSpec { w: 0, ..spec() },
            WidgetSpec { w: 13, ..spec() },
            WidgetSpec { h: 0, ..spec() },
            WidgetSpec { h: 13, ..spec() },
            WidgetSpec { title: " ".into(), ..spec() },
            WidgetSpec { title: "x".repeat(256), ..spec() },
            WidgetSpec { title: "a\0b".into(), ..spec() },
            WidgetSpec { config: Some("x".repeat(10_001)), ..spec() },
        ];
        for wrong in wrong {
            assert!(wrong.clone().validate().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn changes_survive_the_bus() {
        let changes = WidgetChanges { channel: Some(None), x: Some(3), ..Default::default() };
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(text, r#"{"channel":null,"x":3}"#);
        assert_eq!(serde_json::from_str::<WidgetChanges>(&text).unwrap(), changes);
    }
}
