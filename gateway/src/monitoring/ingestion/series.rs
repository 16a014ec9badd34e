//! Values that name their series by labels.
//!
//! A series belongs to the channel that has exactly its labels. One that no channel has becomes a channel, as far as the
//! settings allow. Its id follows from its labels, so that gateways that see it at the same time make one.

use std::{collections::BTreeMap, sync::Arc};

use chrono::{DateTime, Utc};
use futures::future::join_all;
use sha2::{Digest, Sha256};
use signalbox_clock::Clock;
use signalbox_domain::{
    kernel::ErrorKind,
    monitoring::{
        Channel, ChannelCommand, ChannelSpec, ChannelType, Labels, NewChannel, label_fault,
        limits::CHANNEL_TEXT,
    },
};
use uuid::Uuid;

use super::{Item, Refusal, Repetition, Source, Taken, take};
use crate::{
    auth::CurrentUser,
    context::RequestContext,
    monitoring::ingestion::IngestionServices,
    problem::Problem,
    services::{catalog::Catalog, commands::Commands, consistency::ReadGate, series_ids::series_ids},
};

/// How often values are taken anew because their channels have changed.
const ATTEMPTS: usize = 3;
/// Channels that one request makes at the same time; others may make theirs in between.
const MADE_AT_ONCE: usize = 32;
/// Characters of a digest at the end of a name.
const DIGEST: usize = 16;

/// A value of a series.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct SeriesValue {
    /// Index of its series.
    pub(crate) series: usize,
    /// When it was measured; the time of arrival if the sender does not say.
    pub(crate) time: Option<DateTime<Utc>>,
    /// Finite.
    pub(crate) value: f64,
}

/// Gives a channel that is made for these labels its name.
pub(crate) type Naming = fn(&Labels) -> String;

/// Indexes of values that were not recorded, and why.
pub(crate) type RefusedValues = BTreeMap<usize, String>;

/// Records `values` of `series`, each of which is recognised when it is sent again. The values of series without a channel and
/// those with wrong times are left out, and a series that has no other values gets no channel: a sender that counts in another
/// unit of time would fill the installation with empty ones.
pub(crate) async fn take_series(
    services: &IngestionServices,
    user: &CurrentUser,
    context: &RequestContext,
    (series, naming): (&[Labels], Naming),
    values: &[SeriesValue],
) -> Result<RefusedValues, Problem> {
    // Once for all attempts, so that values without a time are recognised.
    let arrived = services.server_clock.now();
    let stamp = context.first_seen().map_or(arrived, |first| first.min(arrived));
    let (mut wrong, mut possible) = (RefusedValues::new(), Vec::with_capacity(values.len()));
    let mut is_measured = vec![false; series.len()];
    for (index, value) in values.iter().enumerate() {
        match value.time.and_then(|time| Refusal::of_time(time, arrived)) {
            Some(refusal) => drop(wrong.insert(index, refusal.reason().to_owned())),
            None => {
                is_measured[value.series] = true;
                possible.push((index, value));
            }
        }
    }
    for _ in 0..ATTEMPTS {
        let found = channels(services, user, context, (series, naming), &is_measured).await?;
        if let Some(mut refused) = take_found(services, user, &found, &possible, stamp).await? {
            refused.append(&mut wrong);
            return Ok(refused);
        }
        services.catalogs.newest().await?;
    }
    Err(Problem::unavailable(
        "channels were deleted or made while their values were written: send them again",
    ))
}

/// Records values of the series whose channels were `found`; `None` if a channel was deleted a moment ago, or is so new that this
/// gateway does not see it. The values of the others are recorded then, and recognised when they are taken again.
async fn take_found(
    services: &IngestionServices,
    user: &CurrentUser,
    found: &[Found],
    values: &[(usize, &SeriesValue)],
    stamp: DateTime<Utc>,
) -> Result<Option<RefusedValues>, Problem> {
    let mut refused = RefusedValues::new();
    let (mut items, mut indexes) = (Vec::with_capacity(values.len()), Vec::with_capacity(values.len()));
    for &(index, value) in values {
        match &found[value.series] {
            Ok(channel) => {
                let time = value.time.or(Some(stamp));
                items.push(Item { channel: Some(*channel), time, value: value.value });
                indexes.push(index);
            }
            Err(not_taken) => drop(refused.insert(index, not_taken.reason())),
        }
    }
    let source = Source { sender: user, repetition: Repetition::Value };
    let Taken { refused: wrong, .. } = take(services, &source, &items).await?;
    for (index, refusal) in wrong {
        if refusal == Refusal::UnknownEvent {
            return Ok(None);
        }
        refused.insert(indexes[index], refusal.reason().to_owned());
    }
    Ok(Some(refused))
}

/// Why a series has no channel.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NotTaken {
    /// Its labels cannot be stored; the rest of a sentence after their name.
    Labels(String),
    /// Channels are made by users only.
    Unknown,
    /// As many channels as may be have been made.
    TooMany { most: u32 },
    /// The channel was refused.
    Refused(String),
}

impl NotTaken {
    fn reason(&self) -> String {
        match self {
            Self::Labels(fault) => format!("labels {fault}"),
            Self::Unknown => {
                "no channel has these labels, and ingest.create_channels is off: create the channel first"
                    .to_owned()
            }
            Self::TooMany { most } => format!(
                "the series is new, and {most} channels were made for series: raise ingest.max_channels, or delete some"
            ),
            Self::Refused(why) => format!("no channel could be made for the series: {why}"),
        }
    }
}

type Found = Result<Uuid, NotTaken>;

/// The channel of each of `series`; a new one only for those that are `measured`.
async fn channels(
    services: &IngestionServices,
    user: &CurrentUser,
    context: &RequestContext,
    (series, naming): (&[Labels], Naming),
    measured: &[bool],
) -> Result<Vec<Found>, Problem> {
    let mut found: Vec<Option<Found>> =
        series.iter().map(|labels| label_fault(labels).map(|fault| Err(NotTaken::Labels(fault)))).collect();
    let mut catalog = services.catalogs.fresh().await?;
    let mut missing = look_up(&catalog, series, &mut found);
    missing.retain(|index| measured[*index]);
    if !missing.is_empty() {
        catalog = services.catalogs.newest().await?;
        missing = look_up(&catalog, series, &mut found);
        missing.retain(|index| measured[*index]);
    }
    if services.config.ingest.create_channels {
        let most = services.config.ingest.max_channels;
        for part in missing.chunks(MADE_AT_ONCE) {
            // No request waits for its turn to make channels that cannot be made: a flood of new series would hold up all other senders.
            if catalog.count_series() >= most as usize {
                for index in look_up_some(&catalog, series, part, &mut found) {
                    found[index] = Some(Err(NotTaken::TooMany { most }));
                }
            } else {
                catalog = make(services, user, context, (series, naming), part, &mut found).await?;
            }
        }
    }
    Ok(found.into_iter().map(|found| found.unwrap_or(Err(NotTaken::Unknown))).collect())
}

/// Adds to `found` the channels that `catalog` knows; returns the indexes of the others.
fn look_up(catalog: &Catalog, series: &[Labels], found: &mut [Option<Found>]) -> Vec<usize> {
    let unknown: Vec<_> = (0..series.len()).filter(|index| found[*index].is_none()).collect();
    look_up_some(catalog, series, &unknown, found)
}

/// The same for those of `series` that `unknown` names.
fn look_up_some(
    catalog: &Catalog,
    series: &[Labels],
    unknown: &[usize],
    found: &mut [Option<Found>],
) -> Vec<usize> {
    let mut missing = Vec::new();
    for &index in unknown {
        match catalog.labelled(&series[index]) {
            Some(channel) => found[index] = Some(Ok(channel.id)),
            None => missing.push(index),
        }
    }
    missing
}

/// Makes channels for those of `series` that `missing` names. Returns the catalog by which it counted.
async fn make(
    services: &IngestionServices,
    user: &CurrentUser,
    context: &RequestContext,
    (series, naming): (&[Labels], Naming),
    missing: &[usize],
    found: &mut [Option<Found>],
) -> Result<Arc<Catalog>, Problem> {
    let _making = services.catalogs.making.lock().await;
    let catalog = services.catalogs.newest().await?;
    let most = services.config.ingest.max_channels;
    let room = (most as usize).saturating_sub(catalog.count_series());
    // Another request may have made some meanwhile.
    let mut new = look_up_some(&catalog, series, missing, found);
    for index in new.split_off(room.min(new.len())) {
        found[index] = Some(Err(NotTaken::TooMany { most }));
    }
    let made: Vec<_> = new
        .iter()
        .map(|index| {
            make_one(
                &services.commands,
                &services.clock,
                &services.gate,
                user,
                context,
                &catalog,
                (&series[*index], naming),
            )
        })
        .collect();
    for (index, made) in new.iter().zip(join_all(made).await) {
        found[*index] = Some(made?);
    }
    Ok(catalog)
}

async fn make_one(
    commands: &Commands,
    clock: &Clock,
    gate: &ReadGate,
    user: &CurrentUser,
    context: &RequestContext,
    catalog: &Catalog,
    (labels, naming): (&Labels, Naming),
) -> Result<Found, Problem> {
    let name = naming(labels);
    let written = serde_json::to_vec(labels).map_err(|error| Problem::internal(&error))?;
    // An id that a channel has is that of one that was deleted, or that has other labels now.
    let mut ids = series_ids(labels).map_err(|error| Problem::internal(&error))?;
    let free = ids.find(|id| catalog.channel(*id).is_none());
    let id = free.unwrap_or_else(|| clock.new_id());
    let mut refusal = String::new();
    // Different labels may make the same name, and users choose names, too.
    for name in [fitting(&name, &written), with_digest(&name, &written)] {
        let metadata = context.metadata(user.actor(), &format!("create channel {id} {name}"));
        let spec = ChannelSpec {
            name,
            kind: ChannelType::Sensor,
            unit: None,
            min_value: None,
            max_value: None,
            labels: labels.clone(),
            description: None,
            retention_days: None,
        };
        let command = ChannelCommand::Create(NewChannel { number: 0, owner: user.id, spec });
        let Err(rejection) = commands.write::<Channel>(id, None, &metadata, &command).await else {
            return Ok(Ok(id));
        };
        match (rejection.kind, rejection.code.as_str()) {
            (ErrorKind::Unavailable, _) => return Err(rejection.into()),
            (_, "event_exists") => {
                gate.shows::<Channel>(id).await?;
                return Ok(Ok(id));
            }
            (_, "event_name_taken") => refusal = rejection.message,
            _ => return Ok(Err(NotTaken::Refused(rejection.message))),
        }
    }
    Ok(Err(NotTaken::Refused(refusal)))
}

/// `name`, if it is short enough; else cut, with a digest of the labels.
fn fitting(name: &str, labels: &[u8]) -> String {
    if name.chars().count() <= CHANNEL_TEXT { name.to_owned() } else { with_digest(name, labels) }
}

/// The beginning of `name`, and a digest of the labels at its end.
fn with_digest(name: &str, labels: &[u8]) -> String {
    let digest = hex::encode(Sha256::digest(labels));
    let begin: String = name.chars().take(CHANNEL_TEXT - DIGEST - 1).collect();
    format!("{begin}-{}", &digest[..DIGEST])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_and_ends_in_a_digest() {
        assert_eq!(fitting("cpu.user{host=a}", b"x"), "cpu.user{host=a}");
        assert_eq!(fitting(&"ä".repeat(255), b"x"), "ä".repeat(255));
        let cut = fitting(&"ä".repeat(256), b"x");
        assert_eq!(cut.chars().count(), 255);
        assert!(cut.starts_with(&"ä".repeat(238)) && cut.is_char_boundary(cut.len() - DIGEST));
        assert_ne!(cut, fitting(&"ä".repeat(256), b"y"));
    }
}
