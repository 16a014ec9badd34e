//! Instances of plugins: what people say of them, the channels that are mapped, and how they are.

mod decide;
mod events;
#[cfg(test)]
mod tests;

pub use decide::PluginInstance;
pub use events::{
    InstanceChanges, InstanceConfig, InstanceSpec, InstanceStatus, NewInstance, PluginInstanceCommand,
    PluginInstanceEvent, PluginRef,
};
