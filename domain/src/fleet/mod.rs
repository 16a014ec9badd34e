//! What makes values flow: packages of plugins, and instances of plugins with the channels that they feed.

mod instance;
mod mapping;
mod package;

pub use instance::{
    InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, NewInstance, PluginInstance,
    PluginInstanceCommand, PluginInstanceEvent, PluginRef,
};
pub use mapping::{Direction, MappingChanges, MappingSpec};
pub use package::{
    NewPackage, PluginChannel, PluginClass, PluginPackage, PluginPackageCommand, PluginPackageEvent,
};
