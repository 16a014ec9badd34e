use async_trait::async_trait;
use signalbox_domain::{
    catalog::Context,
    kernel::{ChannelId, Decider},
    monitoring::{
        Channel, ChannelEvent, ChannelSpec, Dashboard, DashboardEvent, Experiment, ExperimentEvent, LogEntry,
        LogEntryEvent, NewChannel,
    },
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::{PgConnection, types::Json};

use super::{
    ChannelRow,
    dashboards::{Dashboards, changed_widgets},
    experiments::{self, ExperimentRow},
    log_entries::{self, LogEntryRow},
};
use crate::{
    ApplyError, Projection, Rows,
    table::{Table, changed_ids},
};

/// Folds channels, experiments, dashboards and log entries.
pub struct MonitoringProjection;

pub enum Event {
    Channel(ChannelEvent),
    Experiment(ExperimentEvent),
    Dashboard(DashboardEvent),
    LogEntry(LogEntryEvent),
}

/// Channels, experiments, dashboards and log entries in memory.
#[derive(Default)]
pub struct MonitoringRows {
    pub(super) channels: Table<ChannelRow>,
    pub(super) experiments: Table<ExperimentRow>,
    pub(super) dashboards: Dashboards,
    pub(super) log_entries: Table<LogEntryRow>,
}

impl Projection for MonitoringProjection {
    const CONTEXT: Context = Context::Monitoring;
    const TABLES: &'static [&'static str] =
        &["channels", "experiments", "dashboards", "widgets", "log_entries"];

    type Rows = MonitoringRows;
}

#[async_trait]
impl Rows for MonitoringRows {
    type Event = Event;

    fn decode(event: &RecordedEvent) -> Result<Event, DecodeError> {
        match event.aggregate_type.as_str() {
            Channel::TYPE => event.decode::<Channel>().map(Event::Channel),
            Experiment::TYPE => event.decode::<Experiment>().map(Event::Experiment),
            Dashboard::TYPE => event.decode::<Dashboard>().map(Event::Dashboard),
            _ => event.decode::<LogEntry>().map(Event::LogEntry),
        }
    }

    async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, Event)],
    ) -> Result<(), ApplyError> {
        let changed = |aggregate| changed_ids(events, aggregate);
        let widgets = events.iter().flat_map(|(_, event)| match event {
            Event::Dashboard(event) => changed_widgets(event),
            _ => Vec::new(),
        });
        let (dashboards, widgets) = (changed(Dashboard::TYPE), widgets.collect());
        self.channels.load(connection, schema, changed(Channel::TYPE)).await?;
        self.experiments.load(connection, schema, changed(Experiment::TYPE)).await?;
        self.dashboards.load(connection, schema, dashboards, widgets).await?;
        self.log_entries.load(connection, schema, changed(LogEntry::TYPE)).await
    }

    fn apply(&mut self, recorded: &RecordedEvent, event: Event) {
        match event {
            Event::Channel(event) => self.channel(recorded, event),
            Event::Experiment(event) => experiments::fold(&mut self.experiments, recorded, event),
            Event::Dashboard(event) => self.dashboards.fold(recorded, event),
            Event::LogEntry(event) => log_entries::fold(&mut self.log_entries, recorded, event),
        }
    }

    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        self.channels.write(connection, schema, keep).await?;
        self.experiments.write(connection, schema, keep).await?;
        self.dashboards.write(connection, schema, keep).await?;
        self.log_entries.write(connection, schema, keep).await.map(|_| ())
    }
}

impl MonitoringRows {
    fn channel(&mut self, recorded: &RecordedEvent, event: ChannelEvent) {
        let id = recorded.aggregate_id;
        if let ChannelEvent::ChannelCreated(new) = event {
            return self.channels.put(created(recorded, new));
        }
        let Some(row) = self.channels.change(id) else { return };
        row.version = recorded.sequence;
        row.position = recorded.position;
        row.updated_at = recorded.recorded_at;
        match event {
            ChannelEvent::ChannelCreated(_) => {}
            ChannelEvent::ChannelUpdated { to, .. } => {
                let ChannelSpec {
                    name,
                    kind,
                    unit,
                    min_value,
                    max_value,
                    labels,
                    description,
                    retention_days,
                } = to;
                row.name = name;
                row.channel_type = kind.into();
                row.unit = unit;
                row.min_value = min_value;
                row.max_value = max_value;
                row.labels = Json(labels);
                row.description = description;
                row.retention_days = days_column(retention_days);
            }
            ChannelEvent::ChannelDeleted { values, .. } => {
                row.deleted_at = Some(recorded.recorded_at);
                row.values_deleted = values;
                self.dashboards.unlink(id);
            }
            ChannelEvent::ChannelValuesDeleted => row.values_deleted = true,
        }
    }
}

/// The aggregate bounds it by a number that fits.
fn days_column(days: Option<u32>) -> Option<i32> {
    days.map(|days| i32::try_from(days).unwrap_or(i32::MAX))
}

fn created(recorded: &RecordedEvent, new: NewChannel) -> ChannelRow {
    let ChannelSpec { name, kind, unit, min_value, max_value, labels, description, retention_days } =
        new.spec;
    ChannelRow {
        id: ChannelId(recorded.aggregate_id),
        number: new.number,
        owner_id: new.owner,
        name,
        channel_type: kind.into(),
        unit,
        min_value,
        max_value,
        labels: Json(labels),
        description,
        retention_days: days_column(retention_days),
        deleted_at: None,
        values_deleted: false,
        version: recorded.sequence,
        position: recorded.position,
        created_at: recorded.recorded_at,
        updated_at: recorded.recorded_at,
    }
}
