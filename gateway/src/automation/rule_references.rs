//! The event whose values a rule judges, and the contacts of its alarms.

use signalbox_domain::{
    automation::{NotificationChanges, NotificationSpec},
    kernel::{ChannelId, ContactId},
};
use signalbox_projections::{
    automation::contacts::known_contacts,
    monitoring::{ChannelRow, queries::channel_ever},
};

use crate::{
    extract::id,
    problem::{Problem, ProblemKind},
    resource::find,
    services::replica::Database,
};

/// The field with the contacts of a rule's alarms.
pub(super) const CONTACTS: &str = "contact_ids";
/// The field with those of an escalation.
pub(super) const ESCALATION: &str = "escalation_contact_ids";

/// The channel that a client calls `id`.
pub(super) async fn channel(database: &Database, id: &str) -> Result<ChannelId, Problem> {
    if id.contains('\0') || id.len() > 255 {
        return Err(Problem::field("event_public_id", "must be the id of an event"));
    }
    Ok(find::<ChannelRow>(database, id).await?.id)
}

/// Refuses to have `rule` judge values of a channel that was deleted; `remedy` says what to do instead.
pub(super) async fn is_there(
    database: &Database,
    rule: &str,
    id: ChannelId,
    remedy: &str,
) -> Result<(), Problem> {
    let known = database.read(|pool| channel_ever(pool, id)).await?;
    let name = match known {
        Some(row) if row.deleted_at.is_none() => return Ok(()),
        Some(row) => format!("'{}'", row.name),
        None => id.to_string(),
    };
    let detail = format!("Rule '{rule}' watches the event {name}, which was deleted: {remedy}.");
    Err(Problem::new(ProblemKind::NotFound, "event_deleted", detail))
}

/// The contacts that a client calls `ids` in `field`.
pub(super) fn contacts(field: &str, ids: &[String]) -> Result<Vec<ContactId>, Problem> {
    let known = |(place, text): (usize, &String)| {
        id(text).map(ContactId).ok_or_else(|| Problem::not_found_in("Contact", field, place))
    };
    ids.iter().enumerate().map(known).collect()
}

/// Refuses contacts that do not exist, and says which one it is. Those that are named already may stay: an older release let
/// them be deleted. The aggregate holds on to those that exist.
pub(super) async fn find_contacts(
    database: &Database,
    named: &NotificationChanges,
    before: &NotificationSpec,
) -> Result<(), Problem> {
    let before = before.all_contacts();
    let lists = [(CONTACTS, &named.contacts), (ESCALATION, &named.escalation_contacts)];
    let named: Vec<_> = lists
        .into_iter()
        .flat_map(|(field, contacts)| {
            let ids = contacts.iter().flatten().flatten().copied().enumerate();
            ids.map(move |(place, contact)| (field, place, contact))
        })
        .filter(|(.., contact)| !before.contains(contact))
        .collect();
    if named.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = named.iter().map(|(.., id)| *id).collect();
    let known = database.read(|pool| known_contacts(pool, &ids)).await?;
    match named.into_iter().find(|(.., id)| !known.contains(id)) {
        Some((field, place, _)) => Err(Problem::not_found_in("Contact", field, place)),
        None => Ok(()),
    }
}
