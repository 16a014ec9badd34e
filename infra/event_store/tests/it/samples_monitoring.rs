use signalbox_domain::{
    kernel::{ChannelId, UserId, WidgetId},
    monitoring::{
        ChannelEvent, ChannelSpec, ChannelType, DashboardEvent, ExperimentEvent, Labels, LogEntryEvent,
        LogStatus, LogType, NewChannel, NewDashboard, NewExperiment, NewLogEntry, PlacedWidget,
        WidgetChanges, WidgetSpec, WidgetType,
    },
};

use super::id;

fn channel_spec(name: &str) -> ChannelSpec {
    ChannelSpec {
        name: name.to_owned(),
        kind: ChannelType::CmdButton,
        unit: Some("°C".to_owned()),
        min_value: Some(-1.5),
        max_value: Some(99.9),
        labels: Labels::from([("line".to_owned(), "2".to_owned()), ("room".to_owned(), "Süd".to_owned())]),
        description: Some("the boiler in the cellar".to_owned()),
        retention_days: Some(30),
    }
}

pub(super) fn after_channel(event: Option<&ChannelEvent>) -> Option<ChannelEvent> {
    let new = NewChannel { number: 3, owner: UserId(id(7)), spec: channel_spec("boiler") };
    match event {
        None => Some(ChannelEvent::ChannelCreated(new)),
        Some(ChannelEvent::ChannelCreated(_)) => {
            Some(ChannelEvent::ChannelUpdated { from: channel_spec("boiler"), to: channel_spec("kettle") })
        }
        Some(ChannelEvent::ChannelUpdated { .. }) => {
            Some(ChannelEvent::ChannelDeleted { name: "kettle".to_owned(), values: false })
        }
        Some(ChannelEvent::ChannelDeleted { .. }) => Some(ChannelEvent::ChannelValuesDeleted),
        Some(ChannelEvent::ChannelValuesDeleted) => None,
    }
}

pub(super) fn after_experiment(event: Option<&ExperimentEvent>) -> Option<ExperimentEvent> {
    let Some(event) = event else {
        let new = NewExperiment { owner: UserId(id(7)), name: "burn-in".to_owned() };
        return Some(ExperimentEvent::ExperimentStarted(new));
    };
    match event {
        ExperimentEvent::ExperimentStarted(_) => Some(ExperimentEvent::ExperimentRenamed {
            from: "burn-in".to_owned(),
            to: "second burn-in".to_owned(),
        }),
        ExperimentEvent::ExperimentRenamed { .. } => Some(ExperimentEvent::ExperimentStopped),
        ExperimentEvent::ExperimentStopped => {
            Some(ExperimentEvent::ExperimentDeleted { name: "second burn-in".to_owned() })
        }
        ExperimentEvent::ExperimentDeleted { .. } => None,
    }
}

fn widget_spec() -> WidgetSpec {
    WidgetSpec {
        kind: WidgetType::LineChart,
        title: "Boiler".to_owned(),
        channel: Some(ChannelId(id(3))),
        x: 1,
        y: 2,
        w: 6,
        h: 4,
        config: Some("{\"colour\": \"red\"}".to_owned()),
    }
}

pub(super) fn after_dashboard(event: Option<&DashboardEvent>) -> Option<DashboardEvent> {
    let widget = WidgetId(id(4));
    let Some(event) = event else {
        let new = NewDashboard { owner: UserId(id(7)), name: "Hall".to_owned(), is_global: false };
        return Some(DashboardEvent::DashboardCreated(new));
    };
    match event {
        DashboardEvent::DashboardCreated(_) => {
            Some(DashboardEvent::DashboardUpdated { name: "Whole hall".to_owned(), is_global: true })
        }
        DashboardEvent::DashboardUpdated { .. } => {
            Some(DashboardEvent::WidgetAdded { widget, spec: widget_spec() })
        }
        DashboardEvent::WidgetAdded { .. } => {
            let changes = WidgetChanges {
                title: Some("Kettle".to_owned()),
                channel: Some(None),
                x: Some(0),
                y: Some(0),
                w: Some(12),
                h: Some(1),
                config: Some(None),
            };
            Some(DashboardEvent::WidgetUpdated { widget, changes })
        }
        DashboardEvent::WidgetUpdated { .. } => Some(DashboardEvent::WidgetRemoved { widget }),
        DashboardEvent::WidgetRemoved { .. } => {
            let placed = PlacedWidget { widget, added_at: 3, spec: widget_spec() };
            Some(DashboardEvent::DashboardRestored {
                name: "Hall".to_owned(),
                is_global: false,
                widgets: vec![placed],
                removed: vec![WidgetId(id(8))],
            })
        }
        DashboardEvent::DashboardRestored { .. } => {
            Some(DashboardEvent::DashboardDeleted { name: "Whole hall".to_owned() })
        }
        DashboardEvent::DashboardDeleted { .. } => None,
    }
}

pub(super) fn after_log_entry(event: Option<&LogEntryEvent>) -> Option<LogEntryEvent> {
    let Some(event) = event else {
        return Some(LogEntryEvent::LogEntryWritten(NewLogEntry {
            kind: LogType::Warning,
            content: "too hot".to_owned(),
            source: "boiler".to_owned(),
            user: Some(UserId(id(7))),
        }));
    };
    match event {
        LogEntryEvent::LogEntryWritten(_) => Some(LogEntryEvent::LogEntryMarked { status: LogStatus::Read }),
        LogEntryEvent::LogEntryMarked { .. } => {
            Some(LogEntryEvent::LogEntryEdited { from: "too hot".to_owned(), to: "far too hot".to_owned() })
        }
        LogEntryEvent::LogEntryEdited { .. } => None,
    }
}
