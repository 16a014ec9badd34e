//! Channels, experiments, dashboards and log entries as tables, datapoints as chunks.

pub mod dashboards;
pub mod experiments;
mod fold;
pub mod log_entries;
mod past;
pub mod queries;
mod rows;
pub mod series;

pub use fold::{MonitoringProjection, MonitoringRows};
pub use past::past_dashboard;
pub use rows::ChannelRow;
