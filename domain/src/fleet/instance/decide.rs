use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    InstanceSpec, InstanceStatus, NewInstance, PluginInstanceCommand, PluginInstanceEvent, PluginRef,
};
use crate::{
    fleet::{MappingChanges, MappingSpec, mapping::MAX_ID, package::CLASS_CLAIM},
    kernel::{ChannelId, Claim, ClaimOp, Decider, MappingId, Rejection, clean_text, required_text},
    monitoring::channel::CHANNEL_CLAIM,
};

/// Longest error message that is kept, in characters.
pub const MAX_ERROR: usize = 1000;
/// Mappings of one instance at most.
pub const MAX_MAPPINGS: usize = 1000;

const NAME_CLAIM: &str = "plugin_instance.name";

/// A plugin at work on one device, and the channels that it feeds and obeys.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct PluginInstance {
    pub(super) present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Present {
    spec: InstanceSpec,
    /// As they were set here. Links to deleted channels are removed only in the read model.
    pub(super) mappings: BTreeMap<MappingId, MappingSpec>,
    status: InstanceStatus,
    error: Option<String>,
}

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

    /// A report without a change emits no event, however often it is sent.
    fn report(
        &self,
        status: InstanceStatus,
        error: Option<String>,
    ) -> Result<Vec<PluginInstanceEvent>, Rejection> {
        let error = error.map(|error| {
            clean_text(&error, MAX_ERROR).map_err(|error| Rejection::field("error_message", error))
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
