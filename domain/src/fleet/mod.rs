//! What makes values flow: packages of plugins, and instances of plugins with the channels that they feed. And the firmware
//! of the machines that do it.

mod firmware;
mod instance;
mod mapping;
mod package;

pub use firmware::{
    Firmware, FirmwareBundle, FirmwareCommand, FirmwareEvent, FirmwareFailure, FirmwareRef, FirmwareStatus,
    NewFirmware,
};
pub use instance::{
    InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, NewInstance, PluginInstance,
    PluginInstanceCommand, PluginInstanceEvent, PluginRef,
};
pub use mapping::{Direction, MappingChanges, MappingSpec};
pub use package::{
    NewPackage, PluginChannel, PluginClass, PluginPackage, PluginPackageCommand, PluginPackageEvent,
};
