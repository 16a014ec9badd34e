use serde::{Deserialize, Serialize};

use crate::{
    fleet::{MappingChanges, MappingSpec},
    kernel::{MappingId, Rejection, UserId, clean_text, event_kinds, present, required_text},
};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;
/// Longest configuration, in characters.
pub const MAX_CONFIG: usize = 64 * 1024;

/// The class that an instance is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PluginRef {
    /// Id of the class, 1–100 characters.
    pub id: String,
    /// Whether it ships with the service; otherwise a package must provide it.
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
    /// The configuration as entered, possibly sealed; blank text counts as no configuration.
    ///
    /// # Errors
    /// A [`Rejection`] that names the fault.
    pub fn clean(text: Option<&str>) -> Result<Option<String>, Rejection> {
        let clean =
            |text| clean_text(text, MAX_CONFIG).map_err(|error| Rejection::field("config_json", error));
        Ok(text.map(clean).transpose()?.filter(|text| !text.is_empty()))
    }
}

/// The settings of an instance that users choose.
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

impl InstanceSpec {
    pub(super) fn with(self, changes: InstanceChanges) -> Self {
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
    /// A [`Rejection`] that names the invalid field.
    pub fn validate(self) -> Result<Self, Rejection> {
        Ok(Self { name: required_text("instance_name", &self.name, MAX_NAME)?, ..self })
    }
}

/// A new instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewInstance {
    pub owner: UserId,
    pub plugin: PluginRef,
    #[serde(flatten)]
    pub spec: InstanceSpec,
}

/// Changes of an instance; absent fields stay unchanged, `Some(None)` clears.
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

/// Status of an instance, as reported by its controller.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstanceStatus {
    /// No worker runs it.
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
    /// Change its settings.
    Change(InstanceChanges),
    /// Remove it with its mappings; the channels of the service stay.
    Delete,
    /// Map another channel.
    AddMapping {
        /// Key of the mapping.
        mapping: MappingId,
        spec: MappingSpec,
    },
    /// Change a mapping.
    ChangeMapping {
        /// Key of the mapping.
        mapping: MappingId,
        /// Fields that are present change.
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
        /// The current fault, if any.
        error: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PluginInstanceEvent {
    /// An instance exists now.
    PluginInstanceCreated(NewInstance),
    /// Its settings were changed.
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
        #[serde(flatten)]
        spec: MappingSpec,
    },
    /// A mapping changed.
    ChannelMappingUpdated {
        /// Key of the mapping.
        mapping: MappingId,
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
        /// The current fault, if any.
        error: Option<String>,
    },
}

event_kinds!(PluginInstanceEvent, PluginInstanceEventKind {
    // Since version 2, the event states how the configuration is stored.
    PluginInstanceCreated = "plugin_instance_created", "2";
    PluginInstanceUpdated = "plugin_instance_updated", "2";
    PluginInstanceDeleted = "plugin_instance_deleted", "1";
    ChannelMapped = "channel_mapped", "1";
    ChannelMappingUpdated = "channel_mapping_updated", "1";
    ChannelMappingRemoved = "channel_mapping_removed", "1";
    PluginInstanceReported = "plugin_instance_reported", "1";
});
