//! Plugin instances: their settings, their mapped channels, and their status.

mod decide;
mod events;
#[cfg(test)]
mod tests;

pub use decide::PluginInstance;
pub use events::{
    InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, NewInstance, PluginInstanceCommand,
    PluginInstanceEvent, PluginInstanceEventKind, PluginRef,
};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::decide::{MAX_ERROR as INSTANCE_ERROR, MAX_MAPPINGS};
    pub use super::events::{MAX_CONFIG as INSTANCE_CONFIG, MAX_NAME as INSTANCE_NAME};
}
