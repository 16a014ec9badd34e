use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::kernel::{Claim, ClaimOp, Decider, Rejection, UserId, clean_text, present, required_text};

/// Longest name and unit, in characters.
pub const MAX_TEXT: usize = 255;

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
}

/// A line of values over time: a sensor, an output or a command.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Channel {
    spec: Option<ChannelSpec>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ChannelCommand {
    /// Create the channel.
    Create(NewChannel),
    /// Change its settings.
    Change(ChannelChanges),
    /// Remove it; its datapoints stay.
    Delete,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ChannelEvent {
    /// A channel exists now.
    ChannelCreated(NewChannel),
    /// Its settings were changed.
    ChannelUpdated {
        /// Before.
        from: ChannelSpec,
        /// Now.
        to: ChannelSpec,
    },
    /// The channel takes no more values.
    ChannelDeleted {
        /// Its name, which is free again.
        name: String,
    },
}

impl DomainEvent for ChannelEvent {
    fn event_type(&self) -> String {
        match self {
            Self::ChannelCreated(_) => "channel_created",
            Self::ChannelUpdated { .. } => "channel_updated",
            Self::ChannelDeleted { .. } => "channel_deleted",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}

const NAME_CLAIM: &str = "channel.name";
/// Kind of the claim that a channel holds as long as it exists; others require it.
pub const CHANNEL_CLAIM: &str = "channel";

impl Decider for Channel {
    const TYPE: &'static str = "channel";
    const CONTEXT: &'static str = "monitoring";
    const STATE_VERSION: i32 = 1;
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
            (_, None) => Err(Rejection::not_found("Event")),
            (ChannelCommand::Change(changes), Some(from)) => {
                let to = from.clone().with(changes).validate()?;
                Ok(if to == *from {
                    Vec::new()
                } else {
                    vec![ChannelEvent::ChannelUpdated { from: from.clone(), to }]
                })
            }
            (ChannelCommand::Delete, Some(spec)) => {
                Ok(vec![ChannelEvent::ChannelDeleted { name: spec.name.clone() }])
            }
        }
    }

    fn evolve(&mut self, event: ChannelEvent) {
        match event {
            ChannelEvent::ChannelCreated(new) => self.spec = Some(new.spec),
            ChannelEvent::ChannelUpdated { to, .. } => self.spec = Some(to),
            ChannelEvent::ChannelDeleted { .. } => self.spec = None,
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
            ChannelEvent::ChannelDeleted { name: old } => {
                vec![name(ClaimOp::Release, old), exists(ClaimOp::Release)]
            }
        }
    }
}

impl ChannelSpec {
    fn with(self, changes: ChannelChanges) -> Self {
        Self {
            name: changes.name.unwrap_or(self.name),
            kind: changes.kind.unwrap_or(self.kind),
            unit: changes.unit.unwrap_or(self.unit),
            min_value: changes.min_value.unwrap_or(self.min_value),
            max_value: changes.max_value.unwrap_or(self.max_value),
        }
    }

    fn validate(self) -> Result<Self, Rejection> {
        let name = required_text("name", &self.name, MAX_TEXT)?;
        let unit = self.unit.map(|unit| valid_unit(&unit)).transpose()?.filter(|unit| !unit.is_empty());
        let (min_value, max_value) =
            (finite("min_value", self.min_value)?, finite("max_value", self.max_value)?);
        if let (Some(min), Some(max)) = (min_value, max_value)
            && min > max
        {
            return Err(Rejection::field("min_value", "must not be greater than max_value"));
        }
        Ok(Self { name, kind: self.kind, unit, min_value, max_value })
    }
}

fn valid_unit(unit: &str) -> Result<String, Rejection> {
    clean_text(unit, MAX_TEXT).map_err(|error| Rejection::field("unit", error))
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
        }
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
        let changes = ChannelChanges { unit: Some(None), min_value: Some(Some(0.1)), ..Default::default() };
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
    fn only_a_new_name_touches_the_claims() {
        let to = |name: &str| ChannelSpec { name: name.into(), unit: None, ..spec() };
        let claims = |to| Channel::claims(Uuid::nil(), &ChannelEvent::ChannelUpdated { from: spec(), to });
        assert_eq!(claims(to("boiler")), vec![]);
        assert_eq!(claims(to("other")).len(), 2);
    }

    #[test]
    fn a_deleted_channel_is_not_found() {
        let mut channel = channel();
        channel.evolve(ChannelEvent::ChannelDeleted { name: "boiler".into() });
        assert!(channel.decide(ChannelCommand::Delete).is_err());
        assert!(channel.decide(ChannelCommand::Change(ChannelChanges::default())).is_err());
    }
}
