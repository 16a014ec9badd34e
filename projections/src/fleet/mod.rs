//! Packages of plugins, instances and channel mappings as tables.

mod fold;
pub mod queries;
mod rows;

pub use fold::{FleetProjection, FleetRows};
pub use rows::{InstanceRow, MappingRow, PackageRow};
