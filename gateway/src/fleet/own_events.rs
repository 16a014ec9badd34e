//! The events that a plugin instance created, which are deleted with it.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;
use signalbox_domain::{
    fleet::{PluginInstance, PluginInstanceEvent},
    kernel::{ChannelId, Decider, Rejection},
    monitoring::Channel,
};
use signalbox_event_store::read_stream_from;
use signalbox_projections::fleet::queries::unshared_events;
use utoipa::ToSchema;
use uuid::Uuid;

use super::channels::event_id;
use crate::{
    auth::CurrentUser,
    context::RequestContext,
    monitoring::channels::deletion,
    problem::Problem,
    services::{commands::Commands, replica::Database},
    state::Written,
    watching::{CONCURRENT, Watching, if_still_there},
};

/// Something that an answer names.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NamedOut {
    public_id: String,
    name: String,
}

/// Events removed with an instance, and the rules disabled with it.
#[derive(Debug, Default)]
pub(super) struct Removed {
    pub(super) events: Vec<NamedOut>,
    /// Rules on those events, which were disabled.
    pub(super) rules: Vec<NamedOut>,
    /// How far it is shown.
    pub(super) written: Written,
}

/// Deletes the events that `instance` created and that no other instance maps, with their datapoints if `values` says so, and disables
/// the rules on them.
pub(super) async fn remove(
    database: &Database,
    commands: &Commands,
    user: &CurrentUser,
    context: &RequestContext,
    instance: Uuid,
    values: bool,
) -> Result<Removed, Problem> {
    let created = created_by(database, instance).await?;
    let events = unshared_events(&database.primary, instance, &created, values).await?;
    let ids: Vec<_> = events.iter().map(|(id, _)| *id).collect();
    let watching = Watching { database, commands, user, context };
    let rules = watching.enabled_rules(&ids).await?;
    let deleted = stream::iter(ids.clone()).map(|event| async move {
        let metadata = context.metadata(user.actor(), &format!("delete channel {event}"));
        if_still_there(commands.write::<Channel>(event.0, None, &metadata, &deletion(values)).await)
    });
    let deleted: Vec<_> = deleted.buffer_unordered(CONCURRENT).try_collect().await?;
    // The rules on an event that cannot be deleted stay enabled.
    let disabled = watching.disable_rules_on(&ids, rules).await;
    let unseen = deleted.into_iter().flatten().find_map(|written| written.unseen);
    let written = disabled.beside(Written { unseen, ..Written::default() });
    Ok(Removed { events: named(events), rules: named(disabled.rules), written })
}

/// The ids of the events that `instance` created, or would have if there had been none of their names: they follow from the
/// channels that it ever mapped.
async fn created_by(database: &Database, instance: Uuid) -> Result<Vec<ChannelId>, Problem> {
    let id = instance.to_string();
    let mut connection = database.primary.acquire().await?;
    let slice =
        read_stream_from(&mut connection, (PluginInstance::TYPE, id.as_str()), 1, i64::MAX, i64::MAX).await?;
    // As deletion itself answers, which follows; nothing has changed yet.
    let refused = |error: &dyn std::fmt::Display| {
        tracing::error!(%error, %instance, "the events that a plugin instance created are not known");
        Problem::from(Rejection::unreadable_history())
    };
    if let Some(unreadable) = slice.unreadable.first() {
        return Err(refused(&unreadable.error));
    }
    let mut channels = HashSet::new();
    for recorded in &slice.events {
        let event = recorded.decode::<PluginInstance>().map_err(|error| match error.is_newer() {
            true => Rejection::newer_history().into(),
            false => refused(&error),
        })?;
        if let PluginInstanceEvent::ChannelMapped { spec, .. } = event {
            channels.insert(spec.channel_id);
        }
    }
    Ok(channels.iter().map(|channel| event_id(instance, channel).into()).collect())
}

fn named(rows: Vec<(impl ToString, String)>) -> Vec<NamedOut> {
    rows.into_iter().map(|(id, name)| NamedOut { public_id: id.to_string(), name }).collect()
}
