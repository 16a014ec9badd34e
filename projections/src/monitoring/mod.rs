//! Channels as tables, datapoints as chunks.

mod fold;
pub mod queries;
mod rows;
pub mod series;

pub use fold::MonitoringProjection;
pub use rows::ChannelRow;
