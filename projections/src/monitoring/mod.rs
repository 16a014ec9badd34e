//! Channels, as tables.

mod fold;
pub mod queries;
mod rows;

pub use fold::MonitoringProjection;
pub use rows::ChannelRow;
