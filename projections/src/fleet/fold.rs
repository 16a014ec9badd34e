use std::collections::HashSet;

use async_trait::async_trait;
use signalbox_domain::{
    catalog::Context,
    fleet::{
        Firmware, FirmwareEvent, InstanceStatus, MappingChanges, MappingSpec, NewInstance, NewPackage,
        PluginInstance, PluginInstanceEvent, PluginPackage, PluginPackageEvent,
    },
    kernel::{Decider, MappingId},
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::{PgConnection, types::Json};
use uuid::Uuid;

use super::{
    InstanceRow, MappingRow, PackageRow,
    firmware::{self, FirmwareRow, InstallationRow},
};
use crate::{
    ApplyError, Projection, Rows,
    table::{Table, changed_ids},
};

/// Folds packages of plugins, their instances, and firmware updates.
pub struct FleetProjection;

pub enum Event {
    Package(PluginPackageEvent),
    Instance(PluginInstanceEvent),
    Firmware(FirmwareEvent),
}

/// Packages, instances, mappings and firmware updates in memory.
#[derive(Default)]
pub struct FleetRows {
    packages: Table<PackageRow>,
    pub(super) instances: Table<InstanceRow>,
    pub(super) mappings: Table<MappingRow>,
    pub(super) firmware: Table<FirmwareRow>,
    pub(super) installation: Table<InstallationRow>,
    deleted_instances: HashSet<Uuid>,
}

impl Projection for FleetProjection {
    const CONTEXT: Context = Context::Fleet;
    const TABLES: &'static [&'static str] = &[
        "plugin_packages",
        "plugin_instances",
        "channel_mappings",
        "firmware_updates",
        "firmware_installation",
    ];

    type Rows = FleetRows;
}

#[async_trait]
impl Rows for FleetRows {
    type Event = Event;

    fn decode(event: &RecordedEvent) -> Result<Event, DecodeError> {
        match event.aggregate_type.as_str() {
            PluginPackage::TYPE => event.decode::<PluginPackage>().map(Event::Package),
            Firmware::TYPE => event.decode::<Firmware>().map(Event::Firmware),
            _ => event.decode::<PluginInstance>().map(Event::Instance),
        }
    }

    async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, Event)],
    ) -> Result<(), ApplyError> {
        let changed = |aggregate| changed_ids(events, aggregate);
        let mappings = events.iter().filter_map(|(_, event)| changed_mapping(event)).collect();
        self.packages.load(connection, schema, changed(PluginPackage::TYPE)).await?;
        self.instances.load(connection, schema, changed(PluginInstance::TYPE)).await?;
        self.mappings.load(connection, schema, mappings).await?;
        self.firmware.load(connection, schema, changed(Firmware::TYPE)).await?;
        let installation = events.iter().filter_map(|(_, event)| changed_installation(event)).collect();
        self.installation.load(connection, schema, installation).await
    }

    fn apply(&mut self, recorded: &RecordedEvent, event: Event) {
        match event {
            Event::Package(event) => self.package(recorded, event),
            Event::Instance(event) => self.instance(recorded, event),
            Event::Firmware(event) => {
                firmware::fold(&mut self.firmware, &mut self.installation, recorded, event)
            }
        }
    }

    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError> {
        let deleted = std::mem::take(&mut self.deleted_instances);
        self.mappings.remove_where(|mapping| deleted.contains(&mapping.instance_id));
        self.packages.write(connection, schema, keep).await?;
        self.instances.write(connection, schema, keep).await?;
        self.mappings.write(connection, schema, keep).await?;
        self.firmware.write(connection, schema, keep).await?;
        self.installation.write(connection, schema, keep).await?;
        // Afterwards is in order: nothing is mapped to an instance after its deletion.
        if !deleted.is_empty() {
            let sql = format!("DELETE FROM {schema}.channel_mappings WHERE instance_id = ANY($1)");
            sqlx::query(&sql).bind(Vec::from_iter(deleted)).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

fn changed_mapping(event: &Event) -> Option<Uuid> {
    match event {
        Event::Instance(
            PluginInstanceEvent::ChannelMappingUpdated { mapping, .. }
            | PluginInstanceEvent::ChannelMappingRemoved { mapping },
        ) => Some(mapping.0),
        _ => None,
    }
}

fn changed_installation(event: &Event) -> Option<Uuid> {
    match event {
        Event::Firmware(event) => firmware::changed_installation(event),
        _ => None,
    }
}

impl FleetRows {
    fn package(&mut self, recorded: &RecordedEvent, event: PluginPackageEvent) {
        match event {
            PluginPackageEvent::PluginPackageInstalled(new) => self.packages.put(installed(recorded, new)),
            PluginPackageEvent::PluginPackageUninstalled { .. } => {
                self.packages.remove(recorded.aggregate_id)
            }
        }
    }

    fn instance(&mut self, recorded: &RecordedEvent, event: PluginInstanceEvent) {
        let (id, at) = (recorded.aggregate_id, recorded.recorded_at);
        if let PluginInstanceEvent::PluginInstanceCreated(new) = event {
            return self.instances.put(created(recorded, new));
        }
        if let Some(row) = self.instances.change(id) {
            row.version = recorded.sequence;
            if !matches!(event, PluginInstanceEvent::PluginInstanceReported { .. }) {
                row.updated_at = at;
            }
        }
        match event {
            PluginInstanceEvent::PluginInstanceCreated(_) => {}
            PluginInstanceEvent::PluginInstanceUpdated { to, .. } => {
                if let Some(row) = self.instances.change(id) {
                    (row.name, row.config) = (to.name, to.config.map(Json));
                    (row.demo_mode, row.enabled) = (to.demo_mode, to.enabled);
                }
            }
            PluginInstanceEvent::PluginInstanceDeleted { .. } => {
                self.instances.remove(id);
                self.deleted_instances.insert(id);
            }
            PluginInstanceEvent::ChannelMapped { mapping, spec } => {
                self.mappings.put(mapped(recorded, mapping, spec));
            }
            PluginInstanceEvent::ChannelMappingUpdated { mapping, changes } => {
                if let Some(row) = self.mappings.change(mapping.0) {
                    change(row, changes);
                }
            }
            PluginInstanceEvent::ChannelMappingRemoved { mapping } => self.mappings.remove(mapping.0),
            PluginInstanceEvent::PluginInstanceReported { status, error } => {
                if let Some(row) = self.instances.change(id) {
                    (row.status, row.error) = (status.into(), error);
                }
            }
        }
    }
}

fn installed(recorded: &RecordedEvent, new: NewPackage) -> PackageRow {
    let NewPackage { owner, name, version, file_name, size, sha256, classes } = new;
    PackageRow {
        id: recorded.aggregate_id,
        owner_id: owner,
        name,
        package_version: version,
        file_name,
        size: i64::try_from(size).unwrap_or(i64::MAX),
        sha256: sha256.to_string(),
        classes: Json(classes),
        position: recorded.position,
        version: recorded.sequence,
        created_at: recorded.recorded_at,
    }
}

fn created(recorded: &RecordedEvent, new: NewInstance) -> InstanceRow {
    let NewInstance { owner, plugin, spec } = new;
    InstanceRow {
        id: recorded.aggregate_id,
        owner_id: owner,
        plugin_id: plugin.id,
        name: spec.name,
        demo_mode: spec.demo_mode,
        enabled: spec.enabled,
        config: spec.config.map(Json),
        status: InstanceStatus::default().into(),
        error: None,
        version: recorded.sequence,
        created_at: recorded.recorded_at,
        updated_at: recorded.recorded_at,
    }
}

fn mapped(recorded: &RecordedEvent, mapping: MappingId, spec: MappingSpec) -> MappingRow {
    MappingRow {
        id: mapping,
        instance_id: recorded.aggregate_id,
        position: recorded.position,
        channel_id: spec.channel_id,
        channel_name: spec.channel_name,
        direction: spec.direction.into(),
        unit: spec.unit,
        event_id: spec.event,
        created_at: recorded.recorded_at,
    }
}

fn change(row: &mut MappingRow, changes: MappingChanges) {
    let MappingChanges { channel_name, direction, unit, event } = changes;
    row.channel_name = channel_name.unwrap_or(std::mem::take(&mut row.channel_name));
    if let Some(direction) = direction {
        row.direction = direction.into();
    }
    row.unit = unit.unwrap_or(std::mem::take(&mut row.unit));
    row.event_id = event.unwrap_or(row.event_id);
}
