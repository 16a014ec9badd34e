mod events;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{ChannelCommand, ChannelEvent, ChannelEventKind};
use crate::kernel::{Claim, ClaimOp, Decider, Rejection, UserId, clean_text, present, required_text};

/// Longest name and unit, in characters.
pub const MAX_TEXT: usize = 255;
/// Labels of a channel at most.
pub const MAX_LABELS: usize = 20;
/// Longest key of a label, in bytes.
const MAX_LABEL_KEY: usize = 64;
/// Longest value of a label, in characters.
const MAX_LABEL_VALUE: usize = 255;
/// Longest description, in characters.
pub const MAX_DESCRIPTION: usize = 2000;
/// Longest time that values are kept, in days, but for ever.
pub const MAX_RETENTION_DAYS: u32 = 36_500;

/// Labels by key.
pub type Labels = BTreeMap<String, String>;

/// The type of a channel's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelType {
    /// A continuous measurement.
    Sensor,
    /// A binary output.
    Actuator,
    /// An output between two bounds.
    Range,
    /// A momentary command.
    CmdButton,
    /// The command to open.
    CmdOpened,
    /// The command to close.
    CmdClosed,
}

impl ChannelType {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Sensor => "sensor",
            Self::Actuator => "actuator",
            Self::Range => "range",
            Self::CmdButton => "cmd_button",
            Self::CmdOpened => "cmd_opened",
            Self::CmdClosed => "cmd_closed",
        }
    }
}

/// The settings of a channel that users choose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// Unique name, 1–255 characters.
    pub name: String,
    #[serde(rename = "channel_type")]
    pub kind: ChannelType,
    /// Unit of its values, up to 255 characters.
    pub unit: Option<String>,
    /// Lower bound for displays and sliders; values outside are taken all the same.
    pub min_value: Option<f64>,
    /// Upper bound, likewise.
    pub max_value: Option<f64>,
    /// Up to 20, which lists can be filtered by.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// Up to 2,000 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Days that its values are kept, in place of the installation's number; 0 for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_days: Option<u32>,
}

/// A new channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewChannel {
    /// Its integer in the datapoint log; assigned by the command handler.
    #[serde(default)]
    pub number: i32,
    pub owner: UserId,
    #[serde(flatten)]
    pub spec: ChannelSpec,
}

/// Changes of a channel; absent fields stay unchanged, `Some(None)` clears.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChannelChanges {
    /// New name.
    pub name: Option<String>,
    /// New type.
    #[serde(rename = "channel_type")]
    pub kind: Option<ChannelType>,
    /// New unit.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub unit: Option<Option<String>>,
    /// New lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub min_value: Option<Option<f64>>,
    /// New upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub max_value: Option<Option<f64>>,
    /// All labels that it has from now on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Labels>,
    /// New description.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub description: Option<Option<String>>,
    /// New retention time.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub retention_days: Option<Option<u32>>,
}

/// A line of values over time: a sensor, an output or a command.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Channel {
    spec: Option<ChannelSpec>,
    /// How it was deleted; `None` while it exists, and if it never did.
    #[serde(default)]
    deletion: Option<Deletion>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Deletion {
    /// Whether its datapoints were removed, too.
    values: bool,
}

const NAME_CLAIM: &str = "channel.name";
/// Kind of the claim that a channel holds as long as it exists; others require it.
pub const CHANNEL_CLAIM: &str = "channel";

impl Decider for Channel {
    const TYPE: &'static str = "channel";
    const CONTEXT: &'static str = "monitoring";
    const STATE_VERSION: i32 = 4;
    type Command = ChannelCommand;
    type Event = ChannelEvent;

    fn decide(&self, command: ChannelCommand) -> Result<Vec<ChannelEvent>, Rejection> {
        match (command, &self.spec) {
            (ChannelCommand::Create(_), Some(_)) => {
                Err(Rejection::conflict("event_exists", "This event exists already."))
            }
            (ChannelCommand::Create(new), None) => {
                let spec = new.spec.validate()?;
                Ok(vec![ChannelEvent::ChannelCreated(NewChannel { spec, ..new })])
            }
            (ChannelCommand::DeleteValues, None) => match self.deletion {
                Some(Deletion { values: true }) => Ok(Vec::new()),
                Some(Deletion { values: false }) => Ok(vec![ChannelEvent::ChannelValuesDeleted]),
                None => Err(Rejection::not_found("Event")),
            },
            (_, None) => Err(Rejection::not_found("Event")),
            (ChannelCommand::Change(changes), Some(from)) => {
                let to = from.clone().with(changes).validate()?;
                Ok(if to == *from {
                    Vec::new()
                } else {
                    vec![ChannelEvent::ChannelUpdated { from: from.clone(), to }]
                })
            }
            (ChannelCommand::Delete { values: false }, Some(spec)) => Ok(vec![deleted(spec)]),
            (ChannelCommand::Delete { values: true } | ChannelCommand::DeleteValues, Some(spec)) => {
                Ok(vec![deleted(spec), ChannelEvent::ChannelValuesDeleted])
            }
        }
    }

    fn evolve(&mut self, event: ChannelEvent) {
        match event {
            ChannelEvent::ChannelCreated(new) => {
                *self = Self { spec: Some(new.spec), deletion: None };
            }
            ChannelEvent::ChannelUpdated { to, .. } => self.spec = Some(to),
            ChannelEvent::ChannelDeleted { values, .. } => {
                *self = Self { spec: None, deletion: Some(Deletion { values }) };
            }
            ChannelEvent::ChannelValuesDeleted => self.deletion = Some(Deletion { values: true }),
        }
    }

    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        Rejection::conflict("event_name_taken", "Another event has this name: choose another one.")
    }

    fn claims(id: Uuid, event: &ChannelEvent) -> Vec<Claim> {
        let name = |op, name: &str| Claim::new(op, NAME_CLAIM, name);
        let exists = |op| Claim::new(op, CHANNEL_CLAIM, id.to_string());
        match event {
            ChannelEvent::ChannelCreated(new) => {
                vec![name(ClaimOp::Take, &new.spec.name), exists(ClaimOp::Take)]
            }
            ChannelEvent::ChannelUpdated { from, to } if from.name == to.name => Vec::new(),
            ChannelEvent::ChannelUpdated { from, to } => {
                vec![name(ClaimOp::Release, &from.name), name(ClaimOp::Take, &to.name)]
            }
            ChannelEvent::ChannelDeleted { name: old, .. } => {
                vec![name(ClaimOp::Release, old), exists(ClaimOp::Release)]
            }
            ChannelEvent::ChannelValuesDeleted => Vec::new(),
        }
    }
}

fn deleted(spec: &ChannelSpec) -> ChannelEvent {
    ChannelEvent::ChannelDeleted { name: spec.name.clone(), values: false }
}

impl ChannelSpec {
    /// A channel of which nothing else is set.
    pub fn new(name: impl Into<String>, kind: ChannelType) -> Self {
        Self {
            name: name.into(),
            kind,
            unit: None,
            min_value: None,
            max_value: None,
            labels: Labels::new(),
            description: None,
            retention_days: None,
        }
    }

    fn with(self, changes: ChannelChanges) -> Self {
        Self {
            name: changes.name.unwrap_or(self.name),
            kind: changes.kind.unwrap_or(self.kind),
            unit: changes.unit.unwrap_or(self.unit),
            min_value: changes.min_value.unwrap_or(self.min_value),
            max_value: changes.max_value.unwrap_or(self.max_value),
            labels: changes.labels.unwrap_or(self.labels),
            description: changes.description.unwrap_or(self.description),
            retention_days: changes.retention_days.unwrap_or(self.retention_days),
        }
    }

    fn validate(self) -> Result<Self, Rejection> {
        let name = required_text("name", &self.name, MAX_TEXT)?;
        let unit = optional_text("unit", self.unit, MAX_TEXT)?;
        let description = optional_text("description", self.description, MAX_DESCRIPTION)?;
        let (min_value, max_value) =
            (finite("min_value", self.min_value)?, finite("max_value", self.max_value)?);
        if let (Some(min), Some(max)) = (min_value, max_value)
            && min > max
        {
            return Err(Rejection::field("min_value", "must not be greater than max_value"));
        }
        let labels = valid_labels(self.labels)?;
        let retention_days = self.retention_days;
        if retention_days.is_some_and(|days| days > MAX_RETENTION_DAYS) {
            let fault =
                format!("must be a number of days from 0 to {MAX_RETENTION_DAYS}; 0 keeps values for ever");
            return Err(Rejection::field("retention_days", fault));
        }
        Ok(Self { name, kind: self.kind, unit, min_value, max_value, labels, description, retention_days })
    }
}

fn optional_text(field: &str, text: Option<String>, max: usize) -> Result<Option<String>, Rejection> {
    let Some(text) = text else { return Ok(None) };
    let text = clean_text(&text, max).map_err(|error| Rejection::field(field, error))?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// Whether `key` is the key of a label: `[A-Za-z_][A-Za-z0-9_]{0,63}`.
pub fn is_label_key(key: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    key.len() <= MAX_LABEL_KEY
        && key.bytes().next().is_some_and(|first| is_word(first) && !first.is_ascii_digit())
        && key.bytes().all(is_word)
}

fn valid_labels(labels: Labels) -> Result<Labels, Rejection> {
    match label_fault(&labels) {
        Some(fault) => Err(Rejection::field("labels", fault)),
        None => Ok(labels),
    }
}

/// The fault of `labels` as the rest of a sentence after their name; `None` if they may be stored. Values stay as they were
/// written, spaces included: other systems compare them exactly.
pub fn label_fault(labels: &Labels) -> Option<String> {
    if labels.len() > MAX_LABELS {
        return Some(format!("must hold at most {MAX_LABELS} pairs"));
    }
    if !labels.keys().all(|key| is_label_key(key)) {
        return Some(format!(
            "must have keys of letters, digits and _, of at most {MAX_LABEL_KEY} characters, and no digit first"
        ));
    }
    let is_valid = |value: &String| !value.contains('\0') && value.chars().count() <= MAX_LABEL_VALUE;
    let has_valid_values = labels.values().all(is_valid);
    (!has_valid_values)
        .then(|| format!("must have values of at most {MAX_LABEL_VALUE} characters without NUL"))
}

fn finite(field: &str, value: Option<f64>) -> Result<Option<f64>, Rejection> {
    match value {
        Some(value) if !value.is_finite() => Err(Rejection::field(field, "must be a finite number")),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> ChannelSpec {
        ChannelSpec {
            name: "boiler".into(),
            kind: ChannelType::Sensor,
            unit: Some("°C".into()),
            min_value: Some(0.0),
            max_value: Some(90.0),
            labels: Labels::from([("room".into(), " Süd: 1".into())]),
            description: Some("Kessel im Keller".into()),
            retention_days: Some(30),
        }
    }

    fn label(key: &str, value: &str) -> Labels {
        Labels::from([(key.to_owned(), value.to_owned())])
    }

    fn many_labels(count: usize) -> Labels {
        (0..count).map(|index| (format!("_k{index}"), "ä".repeat(255))).collect()
    }

    fn channel() -> Channel {
        let mut channel = Channel::default();
        let new = NewChannel { number: 1, owner: UserId(Uuid::nil()), spec: spec() };
        channel.evolve(ChannelEvent::ChannelCreated(new));
        channel
    }

    fn change(changes: ChannelChanges) -> Result<Vec<ChannelEvent>, Rejection> {
        channel().decide(ChannelCommand::Change(changes))
    }

    #[test]
    fn what_is_left_out_stays_and_null_clears() {
        let changes = ChannelChanges { unit: Some(None), max_value: Some(Some(95.5)), ..Default::default() };
        let to = ChannelSpec { unit: None, max_value: Some(95.5), ..spec() };
        assert_eq!(change(changes), Ok(vec![ChannelEvent::ChannelUpdated { from: spec(), to }]));
        assert_eq!(change(ChannelChanges::default()), Ok(vec![]));
    }

    #[test]
    fn changes_survive_the_bus() {
        let changes = ChannelChanges {
            unit: Some(None),
            min_value: Some(Some(0.1)),
            labels: Some(Labels::new()),
            description: Some(None),
            retention_days: Some(None),
            ..Default::default()
        };
        let text = serde_json::to_string(&changes).unwrap();
        assert_eq!(serde_json::from_str::<ChannelChanges>(&text).unwrap(), changes);
    }

    #[test]
    fn wrong_specifications_are_refused() {
        let wrong = [
            ChannelSpec { name: " ".into(), ..spec() },
            ChannelSpec { name: "x".repeat(256), ..spec() },
            ChannelSpec { name: "a\0b".into(), ..spec() },
            ChannelSpec { unit: Some("x".repeat(256)), ..spec() },
            ChannelSpec { min_value: Some(91.0), ..spec() },
            ChannelSpec { min_value: Some(f64::NAN), ..spec() },
            ChannelSpec { max_value: Some(f64::INFINITY), ..spec() },
            ChannelSpec { description: Some("x".repeat(2001)), ..spec() },
            ChannelSpec { labels: label("1st", "x"), ..spec() },
            ChannelSpec { labels: label("", "x"), ..spec() },
            ChannelSpec { labels: label("größe", "x"), ..spec() },
            ChannelSpec { labels: label(&"k".repeat(65), "x"), ..spec() },
            ChannelSpec { labels: label("k", &"x".repeat(256)), ..spec() },
            ChannelSpec { labels: label("k", "a\0b"), ..spec() },
            ChannelSpec { labels: many_labels(21), ..spec() },
            ChannelSpec { retention_days: Some(36_501), ..spec() },
        ];
        for spec in wrong {
            let new = NewChannel { number: 1, owner: UserId(Uuid::nil()), spec };
            assert!(Channel::default().decide(ChannelCommand::Create(new.clone())).is_err(), "{new:?}");
        }
    }

    #[test]
    fn equal_bounds_and_the_longest_name_are_taken() {
        let spec = ChannelSpec { name: "ä".repeat(255), min_value: Some(90.0), ..spec() };
        assert_eq!(spec.clone().validate(), Ok(spec));
    }

    #[test]
    fn twenty_labels_of_the_longest_text_are_taken() {
        let labels = ChannelSpec { labels: many_labels(20), ..spec() };
        assert_eq!(labels.clone().validate(), Ok(labels));
        let longest = ChannelSpec { labels: label(&"K".repeat(64), ""), ..spec() };
        assert_eq!(longest.clone().validate(), Ok(longest));
    }

    #[test]
    fn labels_are_replaced_as_a_whole() {
        let changes = ChannelChanges { labels: Some(label("line", "2")), ..Default::default() };
        let to = ChannelSpec { labels: label("line", "2"), ..spec() };
        assert_eq!(change(changes), Ok(vec![ChannelEvent::ChannelUpdated { from: spec(), to }]));
        let changes =
            ChannelChanges { labels: Some(Labels::new()), description: Some(None), ..Default::default() };
        let to = ChannelSpec { labels: Labels::new(), description: None, ..spec() };
        assert_eq!(change(changes), Ok(vec![ChannelEvent::ChannelUpdated { from: spec(), to }]));
    }

    #[test]
    fn only_a_new_name_touches_the_claims() {
        let to = |name: &str| ChannelSpec { name: name.into(), unit: None, ..spec() };
        let claims = |to| Channel::claims(Uuid::nil(), &ChannelEvent::ChannelUpdated { from: spec(), to });
        assert_eq!(claims(to("boiler")), vec![]);
        assert_eq!(claims(to("other")).len(), 2);
    }

    #[test]
    fn a_deleted_channel_is_not_found() {
        let mut channel = channel();
        channel.evolve(ChannelEvent::ChannelDeleted { name: "boiler".into(), values: false });
        assert!(channel.decide(ChannelCommand::Delete { values: true }).is_err());
        assert!(channel.decide(ChannelCommand::Change(ChannelChanges::default())).is_err());
    }

    fn after(events: &[ChannelEvent]) -> Channel {
        let mut channel = channel();
        events.iter().cloned().for_each(|event| channel.evolve(event));
        channel
    }

    #[test]
    fn values_are_deleted_with_the_channel_or_after_it() {
        let deletion = |values| ChannelEvent::ChannelDeleted { name: "boiler".into(), values };
        let both = vec![deletion(false), ChannelEvent::ChannelValuesDeleted];
        for command in [ChannelCommand::DeleteValues, ChannelCommand::Delete { values: true }] {
            assert_eq!(channel().decide(command), Ok(both.clone()));
        }
        let delete_values = |channel: Channel| channel.decide(ChannelCommand::DeleteValues);
        assert_eq!(delete_values(after(&[deletion(false)])), Ok(vec![ChannelEvent::ChannelValuesDeleted]));
        assert_eq!(delete_values(after(&both)), Ok(vec![]));
        assert_eq!(delete_values(after(&[deletion(true)])), Ok(vec![]), "as one release recorded it");
        assert!(delete_values(Channel::default()).is_err());
    }

    /// Handlers of older releases refuse a word that they do not know, and ignore a field.
    #[test]
    fn deletion_of_values_has_a_word_of_its_own() {
        let sent = serde_json::to_value(ChannelCommand::DeleteValues).unwrap();
        assert_eq!(sent, serde_json::json!({"command": "delete_values"}));
        let written = serde_json::to_value(ChannelEvent::ChannelValuesDeleted).unwrap();
        assert_eq!(written, serde_json::json!({"type": "channel_values_deleted"}));
    }
}
