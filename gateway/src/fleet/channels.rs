//! The events that the channels of a new instance are linked to.

use signalbox_domain::{
    fleet::{Direction, MappingSpec, PluginChannel},
    kernel::{ChannelId, MappingId},
    monitoring::{Channel, ChannelCommand, ChannelSpec, ChannelType, Labels, NewChannel},
};
use signalbox_projections::monitoring::queries;
use uuid::Uuid;

use crate::{
    auth::CurrentUser,
    context::RequestContext,
    problem::Problem,
    services::{commands::Commands, replica::Database},
};

/// Longest name of an event, in characters.
const MAX_NAME: usize = 255;

/// Maps the channels of the instance that is called `instance`, and links each to an event if `link` says so.
pub(super) async fn map(
    database: &Database,
    commands: &Commands,
    user: &CurrentUser,
    context: &RequestContext,
    instance: &str,
    channels: Vec<PluginChannel>,
    link: bool,
) -> Result<Vec<(MappingId, MappingSpec)>, Problem> {
    let mut mappings = Vec::with_capacity(channels.len());
    for channel in &channels {
        // Channels with the same name must not feed the same event.
        let is_shared = channels.iter().filter(|other| other.name == channel.name).count() > 1;
        let label =
            if is_shared { format!("{} ({})", channel.name, channel.id) } else { channel.name.clone() };
        let event_name: String = format!("{instance} – {label}").chars().take(MAX_NAME).collect();
        let event = match link {
            true => Some(event(database, commands, user, context, event_name, channel).await?),
            false => None,
        };
        let mapping =
            MappingId(Uuid::new_v5(&context.resource, format!("mapping {}", channel.id).as_bytes()));
        let PluginChannel { id, name, direction, unit, .. } = channel.clone();
        mappings.push((mapping, MappingSpec { channel_id: id, channel_name: name, direction, unit, event }));
    }
    Ok(mappings)
}

/// The event for `channel`: the one that has its name already, or a new one.
async fn event(
    database: &Database,
    commands: &Commands,
    user: &CurrentUser,
    context: &RequestContext,
    name: String,
    channel: &PluginChannel,
) -> Result<ChannelId, Problem> {
    if let Some(id) = queries::channel_named(&database.primary, &name).await? {
        return Ok(ChannelId(id));
    }
    let spec = ChannelSpec {
        name: name.clone(),
        kind: kind(channel.direction),
        unit: Some(channel.unit.clone()).filter(|unit| !unit.is_empty()),
        min_value: Some(channel.min_value),
        max_value: Some(channel.max_value),
        labels: Labels::new(),
        description: None,
        retention_days: None,
    };
    let (purpose, id) = (purpose(&channel.id), event_id(context.resource, &channel.id));
    let command = ChannelCommand::Create(NewChannel { number: 0, owner: user.id, spec });
    let metadata = context.metadata(user.actor(), &purpose);
    match commands.write::<Channel>(id, None, &metadata, &command).await {
        Ok(_) => Ok(ChannelId(id)),
        // Somebody made it in this moment.
        Err(rejection) if rejection.code == "event_name_taken" => {
            let found = queries::channel_named(&database.primary, &name).await?;
            found.map(ChannelId).ok_or_else(|| rejection.into())
        }
        Err(rejection) => Err(rejection.into()),
    }
}

/// The event that `instance` creates for `channel`.
pub(super) fn event_id(instance: Uuid, channel: &str) -> Uuid {
    Uuid::new_v5(&instance, purpose(channel).as_bytes())
}

fn purpose(channel: &str) -> String {
    format!("create channel {channel}")
}

fn kind(direction: Direction) -> ChannelType {
    match direction {
        Direction::Input => ChannelType::Sensor,
        Direction::Output => ChannelType::Actuator,
        Direction::Bidirectional => ChannelType::Range,
    }
}
