//! Packages of plugins, instances, channel mappings and firmware updates as tables.

pub mod firmware;
mod fold;
mod past;
pub mod queries;
mod rows;

pub use fold::{FleetProjection, FleetRows};
pub use past::{past_firmware, past_instance};
pub use rows::{InstanceRow, MappingRow, PackageRow};
