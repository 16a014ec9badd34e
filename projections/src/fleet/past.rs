//! Plugin instances and firmware updates at a point in time.

use signalbox_boxed::boxed;
use signalbox_domain::{
    fleet::{Firmware, FirmwareEventKind, FirmwareRef, PluginInstance, PluginInstanceEventKind},
    kernel::FirmwareUpdateId,
};
use signalbox_event_store::{LogFilter, LogOrder, search};
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

use super::{
    FleetRows, InstanceRow, MappingRow,
    firmware::{FirmwareRow, HiddenStatus, INSTALLATION, RowStatus},
};
use crate::register::{
    At, Past, Resource, StateError,
    past::{deleted_channels, fold_stream_slice, found},
};

impl Resource for InstanceRow {
    type Aggregate = PluginInstance;
    type Rows = FleetRows;

    fn is_passing(kind: PluginInstanceEventKind) -> bool {
        match kind {
            PluginInstanceEventKind::PluginInstanceReported => true,
            PluginInstanceEventKind::PluginInstanceCreated
            | PluginInstanceEventKind::PluginInstanceUpdated
            | PluginInstanceEventKind::PluginInstanceDeleted
            | PluginInstanceEventKind::ChannelMapped
            | PluginInstanceEventKind::ChannelMappingUpdated
            | PluginInstanceEventKind::ChannelMappingRemoved => false,
        }
    }

    fn of(rows: &FleetRows, id: Uuid) -> Option<&Self> {
        rows.instances.get(id)
    }
}

impl Resource for FirmwareRow {
    type Aggregate = Firmware;
    type Rows = FleetRows;

    fn is_passing(kind: FirmwareEventKind) -> bool {
        match kind {
            FirmwareEventKind::FirmwareCreated
            | FirmwareEventKind::FirmwareBundleAdded
            | FirmwareEventKind::FirmwareApplyRequested
            | FirmwareEventKind::FirmwareRollbackRequested
            | FirmwareEventKind::FirmwareClaimed
            | FirmwareEventKind::FirmwareDownloaded
            | FirmwareEventKind::FirmwareVerified
            | FirmwareEventKind::FirmwareCompleted
            | FirmwareEventKind::FirmwareFailed
            | FirmwareEventKind::FirmwareRolledBack
            | FirmwareEventKind::FirmwareRollbackFailed
            | FirmwareEventKind::FirmwareDeleted
            | FirmwareEventKind::FirmwareFilesRemoved => false,
        }
    }

    fn of(rows: &FleetRows, id: Uuid) -> Option<&Self> {
        rows.firmware.get(id).filter(|row| !row.status.is(RowStatus::Hidden(HiddenStatus::Deleted)))
    }
}

/// The plugin instance `id` at a point in time, with its mappings in order of creation. Mappings to deleted channels
/// are unlinked.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_instance(
    pool: &PgPool,
    id: Uuid,
    at: At,
) -> Result<Past<(InstanceRow, Vec<MappingRow>)>, StateError> {
    let mut rows = FleetRows::default();
    let was_created = fold_stream_slice::<InstanceRow>(pool, &mut rows, id, at, Vec::new()).await?;
    let row = rows.instances.get(id).cloned();
    let mut mappings: Vec<_> = rows.mappings.iter().cloned().collect();
    mappings.sort_unstable_by_key(|mapping| (mapping.position, mapping.id));
    let linked = mappings.iter().filter_map(|mapping| mapping.event_id.map(Uuid::from));
    let deleted = deleted_channels(pool, linked, at).await?;
    for mapping in &mut mappings {
        mapping.event_id = mapping.event_id.filter(|channel| !deleted.contains(&channel.0));
    }
    found::<InstanceRow, _>(pool, id, was_created, row.map(|row| (row, mappings))).await
}

/// The firmware update `id` at a point in time, and the firmware in force; `None` for the one that shipped with the
/// product.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn past_firmware(
    pool: &PgPool,
    FirmwareUpdateId(id): FirmwareUpdateId,
    at: At,
) -> Result<Past<(FirmwareRow, Option<FirmwareRef>)>, StateError> {
    let mut switches = Vec::new();
    for word in ["firmware_completed", "firmware_rolled_back"] {
        let filter =
            LogFilter { event_type: Some(word.to_owned()), last: Some(at.position), ..LogFilter::default() };
        switches.extend(search(pool, &filter, LogOrder::NewestFirst, 1).await?);
    }
    // Its own events are read with its stream.
    switches.retain(|event| event.aggregate_id != id);
    let mut rows = FleetRows::default();
    let was_created = fold_stream_slice::<FirmwareRow>(pool, &mut rows, id, at, switches).await?;
    let running = rows.installation.get(INSTALLATION).and_then(|row| row.running);
    let running = running.map(|Json(running)| running);
    let row = FirmwareRow::of(&rows, id).cloned();
    found::<FirmwareRow, _>(pool, id, was_created, row.map(|row| (row, running))).await
}
