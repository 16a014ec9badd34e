//! Channels (which the specification calls events), experiments, dashboards, and the log that people read.

pub(crate) mod channel;
mod dashboard;
mod experiment;
mod log_entry;

pub use channel::{
    CHANNEL_CLAIM, Channel, ChannelChanges, ChannelCommand, ChannelEvent, ChannelEventKind, ChannelSpec,
    ChannelType, Labels, MAX_LABELS, NewChannel, is_label_key, label_fault,
};
pub use dashboard::{
    Dashboard, DashboardCommand, DashboardEvent, DashboardEventKind, NewDashboard, PlacedWidget,
    WidgetChanges, WidgetSpec, WidgetType,
};
pub use experiment::{Experiment, ExperimentCommand, ExperimentEvent, ExperimentEventKind, NewExperiment};
pub use log_entry::{
    LogEntry, LogEntryCommand, LogEntryEvent, LogEntryEventKind, LogStatus, LogType, NewLogEntry,
};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::channel::{
        MAX_DESCRIPTION as CHANNEL_DESCRIPTION, MAX_RETENTION_DAYS as RETENTION_DAYS,
        MAX_TEXT as CHANNEL_TEXT,
    };
    pub use super::dashboard::limits::*;
    pub use super::experiment::MAX_NAME as EXPERIMENT_NAME;
    pub use super::log_entry::{MAX_CONTENT as LOG_CONTENT, MAX_SOURCE as LOG_SOURCE};
}
