use std::collections::BTreeMap;

use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{MappingChanges, MappingSpec, mapping::MAX_ID, package::CLASS_CLAIM};
use crate::{
    kernel::{
        ChannelId, Claim, ClaimOp, Decider, MappingId, Rejection, UserId, clean_text, present, required_text,
    },
    monitoring::channel::CHANNEL_CLAIM,
};

/// Longest name, in characters.
const MAX_NAME: usize = 255;
/// Longest configuration, in characters.
const MAX_CONFIG: usize = 64 * 1024;
/// Longest error message that is kept, in characters.
const MAX_ERROR: usize = 1000;
/// Mappings of one instance at most.
const MAX_MAPPINGS: usize = 1000;

/// The class that an instance is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRef {
    /// Id of the class, 1–100 characters.
    pub id: String,
    /// Whether it comes with the service; otherwise a package has to offer it.
    pub is_built_in: bool,
}

/// A configuration as it is kept: a JSON object as text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceConfig {
    /// Encrypted, because it may hold passwords of devices.
    Sealed(String),
    /// As it was kept at first.
    Plain(String),
}

impl InstanceConfig {
    /// What people wrote, as it may be sealed; nothing but blanks is none.
    ///
    /// # Errors
    /// A [`Rejection`] that says what is wrong with it.
    pub fn clean(text: Option<&str>) -> Result<Option<String>, Rejection> {
        let clean = |text| {
            clean_text(text, MAX_CONFIG)
                .map_err(|error| Rejection::invalid("invalid_field", format!("config_json {error}")))
        };
        Ok(text.map(clean).transpose()?.filter(|text| !text.is_empty()))
    }
}

/// What people say about an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceSpec {
    /// Unique name, 1–255 characters.
    pub name: String,
    /// Whether its values are simulated.
    pub demo_mode: bool,
    /// Whether a controller is to run it.
    pub enabled: bool,
    /// How the device is reached, and the like.
    pub config: Option<InstanceConfig>,
}

/// A new instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInstance {
    /// Who makes it.
    pub owner: UserId,
    /// What it is an instance of.
    pub plugin: PluginRef,
    /// What people say about it.
    #[serde(flatten)]
    pub spec: InstanceSpec,
}

/// Changes of an instance; what is absent stays as it is, `Some(None)` clears.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceChanges {
    /// New name.
    pub name: Option<String>,
    /// Whether its values are simulated.
    pub demo_mode: Option<bool>,
    /// Whether a controller is to run it.
    pub enabled: Option<bool>,
    /// New configuration.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub config: Option<Option<InstanceConfig>>,
}

/// How an instance is, as the controller that runs it says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceStatus {
    /// Nobody runs it.
    #[default]
    Inactive,
    /// It talks to its device.
    Connected,
    /// It runs, and its values are simulated.
    Demo,
    /// It cannot talk to its device.
    Error,
}

impl InstanceStatus {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Connected => "connected",
            Self::Demo => "demo",
            Self::Error => "error",
        }
    }
}

/// A plugin at work on one device, and the channels that it feeds and obeys.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct PluginInstance {
    present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    spec: InstanceSpec,
    /// As they were set here. A channel that was deleted since is unlinked in the read model alone.
    mappings: BTreeMap<MappingId, MappingSpec>,
    status: InstanceStatus,
    error: Option<String>,
}

/// What can be asked of an instance.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum PluginInstanceCommand {
    /// Create it with its mappings.
    Create {
        /// The instance.
        new: NewInstance,
        /// Its channels.
        mappings: Vec<(MappingId, MappingSpec)>,
    },
    /// Change what people say about it.
    Change(InstanceChanges),
    /// Remove it with its mappings; the channels of the service stay.
    Delete,
    /// Map another channel.
    AddMapping {
        /// Key of the mapping.
        mapping: MappingId,
        /// What is mapped.
        spec: MappingSpec,
    },
    /// Change a mapping.
    ChangeMapping {
        /// Key of the mapping.
        mapping: MappingId,
        /// What is present changes.
        changes: MappingChanges,
    },
    /// Take a mapping away.
    RemoveMapping {
        /// Key of the mapping.
        mapping: MappingId,
    },
    /// Say how it is.
    Report {
        /// How.
        status: InstanceStatus,
        /// What is wrong.
        error: Option<String>,
    },
}

/// What can have happened to an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PluginInstanceEvent {
    /// An instance exists now.
    PluginInstanceCreated(NewInstance),
    /// People say something else about it.
    PluginInstanceUpdated {
        /// Before.
        from: InstanceSpec,
        /// Now.
        to: InstanceSpec,
    },
    /// It is gone, with its mappings.
    PluginInstanceDeleted {
        /// Its name, which is free again.
        name: String,
    },
    /// A channel was mapped.
    ChannelMapped {
        /// Key of the mapping.
        mapping: MappingId,
        /// What is mapped.
        #[serde(flatten)]
        spec: MappingSpec,
    },
    /// A mapping changed.
    ChannelMappingUpdated {
        /// Key of the mapping.
        mapping: MappingId,
        /// What is different.
        changes: MappingChanges,
    },
    /// A mapping was taken away.
    ChannelMappingRemoved {
        /// Key of the mapping.
        mapping: MappingId,
    },
    /// It is otherwise than before.
    PluginInstanceReported {
        /// How.
        status: InstanceStatus,
        /// What is wrong.
        error: Option<String>,
    },
}

impl DomainEvent for PluginInstanceEvent {
    fn event_type(&self) -> String {
        match self {
            Self::PluginInstanceCreated(_) => "plugin_instance_created",
            Self::PluginInstanceUpdated { .. } => "plugin_instance_updated",
            Self::PluginInstanceDeleted { .. } => "plugin_instance_deleted",
            Self::ChannelMapped { .. } => "channel_mapped",
            Self::ChannelMappingUpdated { .. } => "channel_mapping_updated",
            Self::ChannelMappingRemoved { .. } => "channel_mapping_removed",
            Self::PluginInstanceReported { .. } => "plugin_instance_reported",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        match self {
            // Since 2, the configuration says how it is kept.
            Self::PluginInstanceCreated(_) | Self::PluginInstanceUpdated { .. } => "2",
            _ => "1",
        }
        .to_owned()
    }
}

const NAME_CLAIM: &str = "plugin_instance.name";

impl Decider for PluginInstance {
    const TYPE: &'static str = "plugin_instance";
    const CONTEXT: &'static str = "fleet";
    const STATE_VERSION: i32 = 2;
    type Command = PluginInstanceCommand;
    type Event = PluginInstanceEvent;

    fn decide(&self, command: PluginInstanceCommand) -> Result<Vec<PluginInstanceEvent>, Rejection> {
        use PluginInstanceEvent as Event;
        let Some(present) = &self.present else {
            return match command {
                PluginInstanceCommand::Create { new, mappings } => create(new, mappings),
                _ => Err(Rejection::not_found("Plugin instance")),
            };
        };
        match command {
            PluginInstanceCommand::Create { .. } => {
                Err(Rejection::conflict("instance_exists", "This plugin instance exists already."))
            }
            PluginInstanceCommand::Change(changes) => {
                let (from, to) = (present.spec.clone(), present.spec.clone().with(changes).validate()?);
                Ok(if from == to { Vec::new() } else { vec![Event::PluginInstanceUpdated { from, to }] })
            }
            PluginInstanceCommand::Delete => {
                Ok(vec![Event::PluginInstanceDeleted { name: present.spec.name.clone() }])
            }
            PluginInstanceCommand::AddMapping { mapping, spec } => {
                let spec = spec.validate()?;
                present.check_new(&spec)?;
                Ok(vec![Event::ChannelMapped { mapping, spec }])
            }
            PluginInstanceCommand::ChangeMapping { mapping, changes } => {
                let (from, event) = (present.mapping(mapping)?, changes.event);
                let changes = MappingChanges::between(from, from.with(changes).validate()?, event);
                let is_same = changes == MappingChanges::default();
                Ok(if is_same { Vec::new() } else { vec![Event::ChannelMappingUpdated { mapping, changes }] })
            }
            PluginInstanceCommand::RemoveMapping { mapping } => {
                present.mapping(mapping)?;
                Ok(vec![Event::ChannelMappingRemoved { mapping }])
            }
            PluginInstanceCommand::Report { status, error } => present.report(status, error),
        }
    }

    fn evolve(&mut self, event: PluginInstanceEvent) {
        use PluginInstanceEvent as Event;
        match (event, &mut self.present) {
            (Event::PluginInstanceCreated(new), present) => {
                let (mappings, status, error) = Default::default();
                *present = Some(Present { spec: new.spec, mappings, status, error });
            }
            (Event::PluginInstanceUpdated { to, .. }, Some(present)) => present.spec = to,
            (Event::PluginInstanceDeleted { .. }, present) => *present = None,
            (Event::ChannelMapped { mapping, spec }, Some(present)) => {
                present.mappings.insert(mapping, spec);
            }
            (Event::ChannelMappingUpdated { mapping, changes }, Some(present)) => {
                if let Some(spec) = present.mappings.get_mut(&mapping) {
                    *spec = spec.with(changes);
                }
            }
            (Event::ChannelMappingRemoved { mapping }, Some(present)) => {
                present.mappings.remove(&mapping);
            }
            (Event::PluginInstanceReported { status, error }, Some(present)) => {
                (present.status, present.error) = (status, error);
            }
            (_, None) => {}
        }
    }

    fn claim_rejection(_op: ClaimOp, kind: &str) -> Rejection {
        match kind {
            CHANNEL_CLAIM => Rejection::not_found("Event"),
            CLASS_CLAIM => Rejection::not_found("Plugin"),
            _ => Rejection::conflict(
                "instance_name_taken",
                "Another plugin instance has this name: choose another one.",
            ),
        }
    }

    fn claims(_id: Uuid, event: &PluginInstanceEvent) -> Vec<Claim> {
        use PluginInstanceEvent as Event;
        let name = |op, name: &str| Claim::new(op, NAME_CLAIM, name);
        let exists = |ChannelId(id)| Claim::new(ClaimOp::Require, CHANNEL_CLAIM, id.to_string());
        match event {
            Event::PluginInstanceCreated(new) => {
                let class = || Claim::new(ClaimOp::Require, CLASS_CLAIM, new.plugin.id.clone());
                let class = (!new.plugin.is_built_in).then(class);
                [name(ClaimOp::Take, &new.spec.name)].into_iter().chain(class).collect()
            }
            Event::PluginInstanceUpdated { from, to } if from.name != to.name => {
                vec![name(ClaimOp::Release, &from.name), name(ClaimOp::Take, &to.name)]
            }
            Event::PluginInstanceDeleted { name: old } => vec![name(ClaimOp::Release, old)],
            Event::ChannelMapped { spec, .. } => spec.event.map(exists).into_iter().collect(),
            Event::ChannelMappingUpdated { changes, .. } => {
                changes.event.flatten().map(exists).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }
}

fn create(
    new: NewInstance,
    mappings: Vec<(MappingId, MappingSpec)>,
) -> Result<Vec<PluginInstanceEvent>, Rejection> {
    let plugin = PluginRef { id: required_text("plugin_id", &new.plugin.id, MAX_ID)?, ..new.plugin };
    let new = NewInstance { plugin, spec: new.spec.validate()?, ..new };
    let mut instance = PluginInstance::default();
    let mut events = vec![PluginInstanceEvent::PluginInstanceCreated(new)];
    instance.evolve(events[0].clone());
    for (mapping, spec) in mappings {
        let mapped = instance.decide(PluginInstanceCommand::AddMapping { mapping, spec })?;
        mapped.iter().cloned().for_each(|event| instance.evolve(event));
        events.extend(mapped);
    }
    Ok(events)
}

impl Present {
    fn check_new(&self, spec: &MappingSpec) -> Result<(), Rejection> {
        if self.mappings.values().any(|mapped| mapped.channel_id == spec.channel_id) {
            let message = "The plugin instance has a channel with this channel_id already.";
            return Err(Rejection::conflict("channel_mapped", message));
        }
        if self.mappings.len() >= MAX_MAPPINGS {
            let message = format!("A plugin instance has at most {MAX_MAPPINGS} channels.");
            return Err(Rejection::conflict("instance_full", message));
        }
        Ok(())
    }

    fn mapping(&self, mapping: MappingId) -> Result<&MappingSpec, Rejection> {
        self.mappings.get(&mapping).ok_or_else(|| Rejection::not_found("Channel mapping"))
    }

    /// A report that says nothing new is no event, however often it comes.
    fn report(
        &self,
        status: InstanceStatus,
        error: Option<String>,
    ) -> Result<Vec<PluginInstanceEvent>, Rejection> {
        let error = error.map(|error| {
            clean_text(&error, MAX_ERROR)
                .map_err(|error| Rejection::invalid("invalid_field", format!("error_message {error}")))
        });
        let error = error.transpose()?.filter(|error| !error.is_empty());
        let is_known = status == self.status && error == self.error;
        Ok(if is_known {
            Vec::new()
        } else {
            vec![PluginInstanceEvent::PluginInstanceReported { status, error }]
        })
    }
}

impl InstanceSpec {
    fn with(self, changes: InstanceChanges) -> Self {
        Self {
            name: changes.name.unwrap_or(self.name),
            demo_mode: changes.demo_mode.unwrap_or(self.demo_mode),
            enabled: changes.enabled.unwrap_or(self.enabled),
            config: changes.config.unwrap_or(self.config),
        }
    }

    /// The specification as it may be recorded.
    ///
    /// # Errors
    /// A [`Rejection`] that says which field is wrong.
    pub fn validate(self) -> Result<Self, Rejection> {
        Ok(Self { name: required_text("instance_name", &self.name, MAX_NAME)?, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Direction;

    const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(2));

    fn mapping(number: u128, channel_id: &str) -> (MappingId, MappingSpec) {
        let spec = MappingSpec {
            channel_id: channel_id.to_owned(),
            channel_name: "Temperature".to_owned(),
            direction: Direction::Input,
            unit: "°C".to_owned(),
            event: Some(CHANNEL),
        };
        (MappingId(Uuid::from_u128(number)), spec)
    }

    fn new(name: &str, is_built_in: bool) -> NewInstance {
        let spec = InstanceSpec { name: name.to_owned(), demo_mode: true, enabled: true, config: None };
        let plugin = PluginRef { id: "weather".to_owned(), is_built_in };
        NewInstance { owner: UserId(Uuid::nil()), plugin, spec }
    }

    fn created(mappings: Vec<(MappingId, MappingSpec)>) -> Result<PluginInstance, Rejection> {
        let create = PluginInstanceCommand::Create { new: new("Roof", false), mappings };
        let mut instance = PluginInstance::default();
        for event in instance.decide(create)? {
            instance.evolve(event);
        }
        Ok(instance)
    }

    #[test]
    fn an_instance_is_created_with_all_its_channels_or_not_at_all() {
        let instance = created(vec![mapping(1, "t"), mapping(2, "p")]).unwrap();
        assert_eq!(instance.present.unwrap().mappings.len(), 2);
        assert_eq!(created(vec![mapping(1, "t"), mapping(2, "t")]).unwrap_err().code, "channel_mapped");
    }

    #[test]
    fn only_a_class_of_a_package_has_to_be_claimed() {
        let claims = |built_in| {
            let event = PluginInstanceEvent::PluginInstanceCreated(new("Roof", built_in));
            PluginInstance::claims(Uuid::nil(), &event).len()
        };
        assert_eq!((claims(true), claims(false)), (1, 2));
    }

    #[test]
    fn a_configuration_of_blanks_is_none() {
        assert_eq!(InstanceConfig::clean(Some(" \n")), Ok(None));
        assert_eq!(InstanceConfig::clean(Some(" {} ")), Ok(Some("{}".to_owned())));
        assert!(InstanceConfig::clean(Some(&"x".repeat(MAX_CONFIG + 1))).is_err());
    }

    #[test]
    fn a_report_that_says_nothing_new_is_no_event() {
        let mut instance = created(vec![]).unwrap();
        let report = |error: &str| PluginInstanceCommand::Report {
            status: InstanceStatus::Error,
            error: Some(error.into()),
        };
        let told = instance.decide(report("no device")).unwrap();
        assert_eq!(told.len(), 1);
        instance.evolve(told[0].clone());
        assert_eq!(instance.decide(report("no device")), Ok(vec![]));
        assert_eq!(instance.decide(report("another")).unwrap().len(), 1);
    }

    #[test]
    fn a_named_event_is_linked_again_because_it_may_have_been_deleted() {
        let instance = created(vec![mapping(1, "t")]).unwrap();
        let change = |event| PluginInstanceCommand::ChangeMapping {
            mapping: MappingId(Uuid::from_u128(1)),
            changes: MappingChanges { event, ..Default::default() },
        };
        let linked = instance.decide(change(Some(Some(CHANNEL)))).unwrap();
        assert_eq!(PluginInstance::claims(Uuid::nil(), &linked[0]).len(), 1);
        assert_eq!(instance.decide(change(None)), Ok(vec![]));
        let unlinked = instance.decide(change(Some(None))).unwrap();
        assert_eq!(PluginInstance::claims(Uuid::nil(), &unlinked[0]), vec![]);
    }
}
