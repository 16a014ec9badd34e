//! Packages of plugins, instances, channel mappings and firmware updates as tables.

pub mod firmware;
mod fold;
pub mod queries;
mod rows;

pub use fold::{FleetProjection, FleetRows};
pub use rows::{InstanceRow, MappingRow, PackageRow};
