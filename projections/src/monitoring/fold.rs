use std::collections::HashSet;

use signalbox_domain::{
    kernel::Decider,
    monitoring::{Channel, ChannelEvent, ChannelSpec, NewChannel},
};
use signalbox_event_store::RecordedEvent;
use sqlx::PgConnection;
use uuid::Uuid;

use super::ChannelRow;
use crate::{ApplyError, Poison, Projection, table::Table};

/// Folds channels.
pub struct MonitoringProjection;

#[derive(Default)]
struct Fold {
    channels: Table<ChannelRow>,
}

impl Projection for MonitoringProjection {
    const NAME: &'static str = "monitoring";
    const TABLES: &'static [&'static str] = &["channels"];
    const AGGREGATES: &'static [&'static str] = &[Channel::TYPE];

    async fn apply(
        connection: &mut PgConnection,
        schema: &str,
        events: &[&RecordedEvent],
    ) -> Result<Vec<Poison>, ApplyError> {
        let ids = |aggregate: &str| -> HashSet<Uuid> {
            let own = events.iter().filter(|event| event.aggregate_type == aggregate && event.sequence > 1);
            own.map(|event| event.aggregate_id).collect()
        };
        let mut fold = Fold { channels: Table::load(connection, schema, ids(Channel::TYPE)).await? };
        let poisons = events.iter().filter_map(|event| fold.event(event).err()).collect();
        fold.channels.write(connection, schema).await?;
        Ok(poisons)
    }
}

impl Fold {
    fn event(&mut self, event: &RecordedEvent) -> Result<(), Poison> {
        let poison =
            |error: &dyn std::fmt::Display| Poison { position: event.position, error: error.to_string() };
        self.channel(event, event.decode::<Channel>().map_err(|error| poison(&error))?);
        Ok(())
    }

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
                let ChannelSpec { name, kind, unit, min_value, max_value } = to;
                row.name = name;
                row.channel_type = kind.as_str().to_owned();
                row.unit = unit;
                row.min_value = min_value;
                row.max_value = max_value;
            }
            ChannelEvent::ChannelDeleted { .. } => row.deleted_at = Some(recorded.recorded_at),
        }
    }
}

fn created(recorded: &RecordedEvent, new: NewChannel) -> ChannelRow {
    let ChannelSpec { name, kind, unit, min_value, max_value } = new.spec;
    ChannelRow {
        id: recorded.aggregate_id,
        number: new.number,
        owner_id: new.owner.0,
        name,
        channel_type: kind.as_str().to_owned(),
        unit,
        min_value,
        max_value,
        deleted_at: None,
        version: recorded.sequence,
        position: recorded.position,
        created_at: recorded.recorded_at,
        updated_at: recorded.recorded_at,
    }
}
