//! Channels (which the specification calls events), experiments, dashboards, and the log that people read.

pub(crate) mod channel;
mod dashboard;
mod experiment;
mod log_entry;

pub use channel::{
    Channel, ChannelChanges, ChannelCommand, ChannelEvent, ChannelSpec, ChannelType, NewChannel,
};
pub use dashboard::{
    Dashboard, DashboardCommand, DashboardEvent, NewDashboard, PlacedWidget, WidgetChanges, WidgetSpec,
    WidgetType,
};
pub use experiment::{Experiment, ExperimentCommand, ExperimentEvent, NewExperiment};
pub use log_entry::{LogEntry, LogEntryCommand, LogEntryEvent, LogStatus, LogType, NewLogEntry};
