//! The events that the channels of a new instance are linked to.

use std::collections::HashMap;

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{
    fleet::{Direction, MappingSpec, PluginChannel},
    kernel::{ChannelId, MappingId},
    monitoring::{Channel, ChannelCommand, ChannelSpec, ChannelType, NewChannel},
};
use signalbox_projections::monitoring::queries;
use uuid::Uuid;

use crate::{
    auth::CurrentUser,
    context::RequestContext,
    problem::Problem,
    services::{commands::Commands, replica::Database},
};

/// Events that are made at the same time; other requests may make theirs in between.
const CONCURRENT: usize = 64;
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
    let mut counts = HashMap::<&str, usize>::new();
    channels.iter().for_each(|channel| *counts.entry(&channel.name).or_default() += 1);
    let names: Vec<String> = channels
        .iter()
        .map(|PluginChannel { id, name, .. }| {
            // Channels with the same name must not feed the same event.
            let is_shared = counts.get(name.as_str()).is_some_and(|count| *count > 1);
            let label = if is_shared { format!("{name} ({id})") } else { name.clone() };
            format!("{instance} – {label}").chars().take(MAX_NAME).collect()
        })
        .collect();
    let known = if link { queries::channels_named(&database.primary, &names).await? } else { HashMap::new() };
    let planned: Vec<_> = channels
        .iter()
        .cloned()
        .zip(names)
        .map(|(channel, name)| {
            let known = known.get(&name).copied();
            (channel, name, known)
        })
        .collect();
    // Each waits for the log and the read models, so that many at once take hardly longer than one.
    let linked = stream::iter(planned).map(|(channel, name, known)| async move {
        Ok::<_, Problem>(match (link, known) {
            (false, _) => None,
            (true, Some(id)) => Some(ChannelId(id)),
            (true, None) => Some(event(database, commands, user, context, name, &channel).await?),
        })
    });
    let events: Vec<_> = linked.buffered(CONCURRENT).try_collect().await?;
    let mapped = channels.into_iter().zip(events).map(|(channel, event)| {
        let PluginChannel { id, name, direction, unit, .. } = channel;
        let mapping = MappingId(Uuid::new_v5(&context.resource, format!("mapping {id}").as_bytes()));
        (mapping, MappingSpec { channel_id: id, channel_name: name, direction, unit, event })
    });
    Ok(mapped.collect())
}

/// The new event for `channel`, or the one that somebody has made in this moment.
async fn event(
    database: &Database,
    commands: &Commands,
    user: &CurrentUser,
    context: &RequestContext,
    name: String,
    channel: &PluginChannel,
) -> Result<ChannelId, Problem> {
    let spec = ChannelSpec {
        unit: Some(channel.unit.clone()).filter(|unit| !unit.is_empty()),
        min_value: Some(channel.min_value),
        max_value: Some(channel.max_value),
        ..ChannelSpec::new(name.clone(), kind(channel.direction))
    };
    let (purpose, id) = (purpose(&channel.id), event_id(context.resource, &channel.id));
    let command = ChannelCommand::Create(NewChannel { number: 0, owner: user.id, spec });
    let metadata = context.metadata(user.actor(), &purpose);
    match commands.write::<Channel>(id, None, &metadata, &command).await {
        Ok(_) => Ok(ChannelId(id)),
        // Somebody made it in this moment.
        Err(rejection) if rejection.code == "event_name_taken" => {
            let found = queries::channel_named(&database.primary, &name).await?;
            found.ok_or_else(|| rejection.into())
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
