//! Channels, experiments, dashboards and log entries at a point in time.

use signalbox_boxed::boxed;
use signalbox_domain::monitoring::{
    Channel, ChannelEventKind, Dashboard, DashboardEventKind, Experiment, ExperimentEventKind, LogEntry,
    LogEntryEventKind,
};
use sqlx::PgPool;
use uuid::Uuid;

use super::{
    ChannelRow, MonitoringRows,
    dashboards::{DashboardRow, WidgetRow},
    experiments::ExperimentRow,
    log_entries::LogEntryRow,
};
use crate::register::{
    At, Kept, Past, Resource, StateError,
    past::{deleted_channels, fold_stream_slice, found},
};

impl Resource for ChannelRow {
    type Aggregate = Channel;
    type Rows = MonitoringRows;

    fn is_passing(kind: ChannelEventKind) -> bool {
        match kind {
            ChannelEventKind::ChannelCreated
            | ChannelEventKind::ChannelUpdated
            | ChannelEventKind::ChannelDeleted
            | ChannelEventKind::ChannelValuesDeleted => false,
        }
    }

    fn of(rows: &MonitoringRows, id: Uuid) -> Option<&Self> {
        rows.channels.get(id).filter(|row| row.deleted_at.is_none())
    }
}

impl Resource for ExperimentRow {
    type Aggregate = Experiment;
    type Rows = MonitoringRows;

    fn is_passing(kind: ExperimentEventKind) -> bool {
        match kind {
            ExperimentEventKind::ExperimentStarted
            | ExperimentEventKind::ExperimentRenamed
            | ExperimentEventKind::ExperimentStopped
            | ExperimentEventKind::ExperimentDeleted => false,
        }
    }

    fn of(rows: &MonitoringRows, id: Uuid) -> Option<&Self> {
        rows.experiments.get(id)
    }
}

impl Resource for LogEntryRow {
    type Aggregate = LogEntry;
    type Rows = MonitoringRows;

    fn is_passing(kind: LogEntryEventKind) -> bool {
        match kind {
            LogEntryEventKind::LogEntryWritten
            | LogEntryEventKind::LogEntryMarked
            | LogEntryEventKind::LogEntryEdited => false,
        }
    }

    fn of(rows: &MonitoringRows, id: Uuid) -> Option<&Self> {
        rows.log_entries.get(id)
    }
}

impl Resource for DashboardRow {
    type Aggregate = Dashboard;
    type Rows = MonitoringRows;

    fn is_passing(kind: DashboardEventKind) -> bool {
        match kind {
            DashboardEventKind::DashboardCreated
            | DashboardEventKind::DashboardUpdated
            | DashboardEventKind::DashboardDeleted
            | DashboardEventKind::WidgetAdded
            | DashboardEventKind::WidgetUpdated
            | DashboardEventKind::WidgetRemoved
            | DashboardEventKind::DashboardRestored => false,
        }
    }

    fn of(rows: &MonitoringRows, id: Uuid) -> Option<&Self> {
        rows.dashboards.dashboard(id)
    }
}

impl Kept for DashboardRow {
    fn makes_version(kind: DashboardEventKind) -> bool {
        match kind {
            DashboardEventKind::DashboardCreated
            | DashboardEventKind::DashboardUpdated
            | DashboardEventKind::DashboardDeleted
            | DashboardEventKind::WidgetAdded
            | DashboardEventKind::WidgetUpdated
            | DashboardEventKind::WidgetRemoved
            | DashboardEventKind::DashboardRestored => true,
        }
    }
}

impl MonitoringRows {
    /// The dashboard `id` with its widgets, in the order in which they were added.
    pub fn dashboard(&self, id: Uuid) -> Option<(DashboardRow, Vec<WidgetRow>)> {
        Some((self.dashboards.dashboard(id)?.clone(), self.dashboards.widgets_of(id)))
    }
}

/// The dashboard `id` at a point in time, with its widgets. Widgets of deleted channels are empty.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_dashboard(
    pool: &PgPool,
    id: Uuid,
    at: At,
) -> Result<Past<(DashboardRow, Vec<WidgetRow>)>, StateError> {
    let mut rows = MonitoringRows::default();
    let was_created = fold_stream_slice::<DashboardRow>(pool, &mut rows, id, at, Vec::new()).await?;
    let mut shown = rows.dashboard(id);
    if let Some((_, widgets)) = &mut shown {
        let linked = widgets.iter().filter_map(|widget| widget.channel_id.map(Uuid::from));
        let deleted = deleted_channels(pool, linked, at).await?;
        for widget in widgets {
            widget.channel_id = widget.channel_id.filter(|channel| !deleted.contains(&channel.0));
        }
    }
    found::<DashboardRow, _>(pool, id, was_created, shown).await
}
