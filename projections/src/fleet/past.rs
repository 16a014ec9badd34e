//! What plugin instances and firmware updates were.

use signalbox_domain::fleet::{Firmware, FirmwareRef, PluginInstance};
use signalbox_event_store::{LogFilter, LogOrder, search};
use sqlx::{PgPool, types::Json};
use uuid::Uuid;

use super::{
    FleetRows, InstanceRow, MappingRow,
    firmware::{FirmwareRow, INSTALLATION},
};
use crate::register::{
    At, Past, Resource, StateError,
    past::{deleted_channels, fold_life, found},
};

impl Resource for InstanceRow {
    type Aggregate = PluginInstance;
    type Rows = FleetRows;

    const PASSING: &'static [&'static str] = &["plugin_instance_reported"];

    fn of(rows: &FleetRows, id: Uuid) -> Option<&Self> {
        rows.instances.get(id)
    }
}

impl Resource for FirmwareRow {
    type Aggregate = Firmware;
    type Rows = FleetRows;

    fn of(rows: &FleetRows, id: Uuid) -> Option<&Self> {
        rows.firmware.get(id).filter(|row| row.status != "deleted")
    }
}

/// What the plugin instance `id` was, with its mappings in the order in which they were made. Those to channels that had been
/// deleted are linked to none.
///
/// # Errors
/// [`StateError`].
pub async fn past_instance(
    pool: &PgPool,
    id: Uuid,
    at: At,
) -> Result<Past<(InstanceRow, Vec<MappingRow>)>, StateError> {
    let mut rows = FleetRows::default();
    let is_born = fold_life::<InstanceRow>(pool, &mut rows, id, at, Vec::new()).await?;
    let row = rows.instances.get(id).cloned();
    let mut mappings: Vec<_> = rows.mappings.iter().cloned().collect();
    mappings.sort_unstable_by_key(|mapping| (mapping.position, mapping.id));
    let deleted = deleted_channels(pool, mappings.iter().filter_map(|mapping| mapping.event_id), at).await?;
    for mapping in &mut mappings {
        mapping.event_id = mapping.event_id.filter(|channel| !deleted.contains(channel));
    }
    found::<InstanceRow, _>(pool, id, is_born, row.map(|row| (row, mappings))).await
}

/// What the firmware update `id` was, and which one was in force; none for what came with the product.
///
/// # Errors
/// [`StateError`].
pub async fn past_firmware(
    pool: &PgPool,
    id: Uuid,
    at: At,
) -> Result<Past<(FirmwareRow, Option<FirmwareRef>)>, StateError> {
    let mut switches = Vec::new();
    for word in ["firmware_completed", "firmware_rolled_back"] {
        let filter =
            LogFilter { event_type: Some(word.to_owned()), last: Some(at.position), ..LogFilter::default() };
        switches.extend(search(pool, &filter, LogOrder::NewestFirst, 1).await?);
    }
    // Its own are among what happened to it.
    switches.retain(|event| event.aggregate_id != id);
    let mut rows = FleetRows::default();
    let is_born = fold_life::<FirmwareRow>(pool, &mut rows, id, at, switches).await?;
    let running = rows.installation.get(INSTALLATION).and_then(|row| row.running);
    let running = running.map(|Json(running)| running);
    let row = FirmwareRow::of(&rows, id).cloned();
    found::<FirmwareRow, _>(pool, id, is_born, row.map(|row| (row, running))).await
}
