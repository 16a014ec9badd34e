//! Sources of values: plugin packages, and plugin instances with the channels that they feed. Also the firmware of
//! the machines.

mod firmware;
mod instance;
mod mapping;
mod package;

pub use firmware::{
    Firmware, FirmwareBundle, FirmwareCommand, FirmwareEvent, FirmwareEventKind, FirmwareFailure,
    FirmwareRef, FirmwareStatus, NewFirmware,
};
pub use instance::{
    InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, NewInstance, PluginInstance,
    PluginInstanceCommand, PluginInstanceEvent, PluginInstanceEventKind, PluginRef,
};
pub use mapping::{Direction, MappingChanges, MappingSpec};
pub use package::{
    NewPackage, PluginChannel, PluginClass, PluginPackage, PluginPackageCommand, PluginPackageEvent,
    PluginPackageEventKind,
};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::firmware::limits::*;
    pub use super::instance::limits::*;
    pub use super::mapping::{MAX_ID as CHANNEL_ID, MAX_NAME as CHANNEL_NAME, MAX_UNIT as CHANNEL_UNIT};
}
