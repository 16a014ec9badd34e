//! Channels, experiments, dashboards and log entries as tables, datapoints as chunks.

pub mod dashboards;
pub mod experiments;
mod fold;
pub mod log_entries;
pub mod queries;
mod rows;
pub mod series;

pub use fold::{MonitoringProjection, MonitoringRows};
pub use rows::ChannelRow;
