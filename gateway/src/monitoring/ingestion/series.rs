//! Values that name their series by labels.
//!
//! A series belongs to the channel that has exactly its labels. One that no channel has becomes a channel, as far as the
//! settings allow. Its id follows from its labels, so that gateways that see it at the same time make one.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use futures::future::join_all;
use sha2::{Digest, Sha256};
use signalbox_clock::Clock;
use signalbox_datapoint_log::{Point, micros};
use signalbox_domain::{
    kernel::ErrorKind,
    monitoring::{
        Channel, ChannelCommand, ChannelSpec, ChannelType, Labels, NewChannel, label_fault,
        limits::CHANNEL_TEXT,
    },
};
use signalbox_projections::monitoring::queries::HeldState;

use super::{Refusal, arrival::Arrival, keys::SeriesKeys, source::record_new};
use crate::{
    auth::CurrentUser,
    context::RequestContext,
    monitoring::ingestion::IngestionServices,
    problem::Problem,
    services::{
        catalog::Catalog, commands::Commands, consistency::ReadGate, known_series::SeriesChannel,
        series_ids::series_ids,
    },
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

/// Indexes of values that were not recorded, and why.
pub(crate) type RefusedValues = BTreeMap<usize, String>;

/// Records `values` of `series`, each of which is recognised when it is sent again. The values of series without a channel and
/// those with wrong times are left out, and a series that has no other values gets no channel: a sender that counts in another
/// unit of time would fill the installation with empty ones.
pub(crate) async fn take_series(
    services: &IngestionServices,
    user: &CurrentUser,
    context: &RequestContext,
    series: &SeriesKeys,
    values: &[SeriesValue],
) -> Result<RefusedValues, Problem> {
    // Once for all attempts, so that values without a time are recognised.
    let arrived = services.server_clock.now();
    let stamp = context.first_seen().map_or(arrived, |first| first.min(arrived));
    let (mut wrong, mut possible) = (RefusedValues::new(), Vec::with_capacity(values.len()));
    let mut is_measured = vec![false; series.len()];
    let mut arrival = Arrival::at(stamp);
    for (index, value) in values.iter().enumerate().rev() {
        match value.time.and_then(|time| Refusal::of_time(time, arrived)) {
            Some(refusal) => drop(wrong.insert(index, refusal.reason().to_owned())),
            None => {
                is_measured[value.series] = true;
                let time = value.time.unwrap_or_else(|| arrival.time_of_last(value.series));
                possible.push((index, time, value));
            }
        }
    }
    possible.reverse();
    let finding = Finding { services, user, context, series };
    for _ in 0..ATTEMPTS {
        let (found, held) = finding.channels(&is_measured).await?;
        if let Some(mut refused) = take_found(services, user, (&found, held), &possible).await? {
            refused.append(&mut wrong);
            return Ok(refused);
        }
        services.catalogs.newest().await?;
    }
    Err(Problem::unavailable(
        "channels were deleted or made while their values were written: send them again",
    ))
}

/// Records values of the series whose channels were `found` in the state that is `held`; `None` if a channel was deleted a moment ago,
/// or is so new that this gateway does not see it. The values of the others are recorded then, and recognised when they are taken again.
async fn take_found(
    services: &IngestionServices,
    user: &CurrentUser,
    (found, held): (&[Found], HeldState),
    values: &[(usize, DateTime<Utc>, &SeriesValue)],
) -> Result<Option<RefusedValues>, Problem> {
    let deleted = match found.iter().any(Result::is_ok) {
        true => services.living_channels.deleted_since(&services.database.primary, held).await?,
        false => Arc::default(),
    };
    let mut refused = RefusedValues::new();
    let mut points = Vec::with_capacity(values.len());
    let mut has_all = true;
    for &(index, time, value) in values {
        match &found[value.series] {
            Ok(channel) if deleted.is_empty() || !deleted.contains(&channel.id) => {
                points.push(Point { channel: channel.number, time: micros(time), value: value.value });
            }
            Ok(_) | Err(NotTaken::Unseen) => has_all = false,
            Err(not_taken) => drop(refused.insert(index, not_taken.reason())),
        }
    }
    if !points.is_empty() {
        record_new(services, user, &points).await?;
    }
    Ok(has_all.then_some(refused))
}

/// Why a series has no channel.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NotTaken {
    /// Its name cannot be read.
    Unreadable(&'static str),
    /// Its labels cannot be stored; the rest of a sentence after their name.
    Labels(String),
    /// It has one, which was made a moment ago.
    Unseen,
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
            Self::Unreadable(fault) => (*fault).to_owned(),
            Self::Labels(fault) => format!("labels {fault}"),
            Self::Unseen => "its channel was made a moment ago: send the value again".to_owned(),
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

type Found = Result<SeriesChannel, NotTaken>;

/// A series whose channel is not known.
struct Unknown {
    index: usize,
    labels: Labels,
}

/// Finds the channels of `series`, and makes those that are missing.
struct Finding<'a> {
    services: &'a IngestionServices,
    user: &'a CurrentUser,
    context: &'a RequestContext,
    series: &'a SeriesKeys,
}

impl Finding<'_> {
    /// The channel of each series; a new one only for those that are `measured`. And the state since which they may have been deleted.
    async fn channels(&self, measured: &[bool]) -> Result<(Vec<Found>, HeldState), Problem> {
        let Self { services, series, .. } = self;
        let mut catalog = services.catalogs.fresh().await?;
        let held = catalog.held();
        let known = services.known_series.look_up(&catalog, series.keys());
        let mut found: Vec<Option<Found>> = known.into_iter().map(|known| known.map(Ok)).collect();
        let (mut unknown, mut first_of, mut repeated) = (Vec::new(), HashMap::new(), Vec::new());
        for index in (0..series.len()).filter(|index| measured[*index]) {
            if found[index].is_some() {
                continue;
            }
            // The same long labels may be named again and again by a few bytes.
            match first_of.entry(series.key(index)) {
                Entry::Occupied(first) => repeated.push((index, *first.get())),
                Entry::Vacant(entry) => {
                    entry.insert(index);
                    match labels(series, index) {
                        Ok(labels) => unknown.push(Unknown { index, labels }),
                        Err(not_taken) => found[index] = Some(Err(not_taken)),
                    }
                }
            }
        }
        self.look_up(&catalog, &mut unknown, &mut found);
        if !unknown.is_empty() {
            catalog = services.catalogs.newest().await?;
            self.look_up(&catalog, &mut unknown, &mut found);
        }
        if services.config.ingest.create_channels && !unknown.is_empty() {
            self.make_all(catalog, unknown, &mut found).await?;
        }
        for (index, first) in repeated {
            found[index] = found[first].clone();
        }
        Ok((found.into_iter().map(|found| found.unwrap_or(Err(NotTaken::Unknown))).collect(), held))
    }

    /// Adds to `found` the channels that `catalog` knows, and leaves the others in `unknown`.
    fn look_up(&self, catalog: &Catalog, unknown: &mut Vec<Unknown>, found: &mut [Option<Found>]) {
        let mut new = Vec::new();
        unknown.retain(|Unknown { index, labels }| {
            let Some(channel) = catalog.labelled(labels) else { return true };
            let channel = SeriesChannel::from(channel);
            new.push((self.series.key(*index), channel));
            found[*index] = Some(Ok(channel));
            false
        });
        if !new.is_empty() {
            self.services.known_series.remember(catalog, new.into_iter());
        }
    }

    /// Makes channels for `unknown` series as far as the settings allow.
    async fn make_all(
        &self,
        mut catalog: Arc<Catalog>,
        unknown: Vec<Unknown>,
        found: &mut [Option<Found>],
    ) -> Result<(), Problem> {
        let most = self.services.config.ingest.max_channels;
        let (mut made, mut unknown) = (Vec::new(), unknown.into_iter());
        while unknown.len() > 0 {
            let mut part: Vec<_> = unknown.by_ref().take(MADE_AT_ONCE).collect();
            // No request waits for its turn to make channels that cannot be made: a flood of new series would hold up all other senders.
            if catalog.count_series() >= most as usize {
                self.look_up(&catalog, &mut part, found);
                part.iter().for_each(|series| found[series.index] = Some(Err(NotTaken::TooMany { most })));
            } else {
                catalog = self.make(part, found, &mut made).await?;
            }
        }
        if !made.is_empty() {
            catalog = self.services.catalogs.newest().await?;
            self.look_up(&catalog, &mut made, found);
            made.iter().for_each(|series| found[series.index] = Some(Err(NotTaken::Unseen)));
        }
        Ok(())
    }

    /// Makes channels for `new` series, and adds these to `made`. Returns the catalog by which it counted.
    async fn make(
        &self,
        mut new: Vec<Unknown>,
        found: &mut [Option<Found>],
        made: &mut Vec<Unknown>,
    ) -> Result<Arc<Catalog>, Problem> {
        let _making = self.services.catalogs.making.lock().await;
        let catalog = self.services.catalogs.newest().await?;
        let most = self.services.config.ingest.max_channels;
        let room = (most as usize).saturating_sub(catalog.count_series());
        // Another request may have made some meanwhile.
        self.look_up(&catalog, &mut new, found);
        for series in new.split_off(room.min(new.len())) {
            found[series.index] = Some(Err(NotTaken::TooMany { most }));
        }
        let Self { services, user, context, series } = self;
        let name = series.notation.name;
        let making: Vec<_> = new
            .iter()
            .map(|Unknown { labels, .. }| {
                let (commands, clock, gate) = (&services.commands, &services.clock, &services.gate);
                make_one(commands, clock, gate, user, context, &catalog, (labels, name(labels)))
            })
            .collect();
        let outcomes = join_all(making).await;
        for (series, one) in new.into_iter().zip(outcomes) {
            match one? {
                Ok(()) => made.push(series),
                Err(not_taken) => found[series.index] = Some(Err(not_taken)),
            }
        }
        Ok(catalog)
    }
}

/// The labels of the series `index`, if a channel can have them.
fn labels(series: &SeriesKeys, index: usize) -> Result<Labels, NotTaken> {
    let labels = series.labels(index).map_err(NotTaken::Unreadable)?;
    match label_fault(&labels) {
        None => Ok(labels),
        Some(fault) => Err(NotTaken::Labels(fault)),
    }
}

async fn make_one(
    commands: &Commands,
    clock: &Clock,
    gate: &ReadGate,
    user: &CurrentUser,
    context: &RequestContext,
    catalog: &Catalog,
    (labels, name): (&Labels, String),
) -> Result<Result<(), NotTaken>, Problem> {
    let written = serde_json::to_vec(labels).map_err(|error| Problem::internal(&error))?;
    // An id that a channel has is that of one that was deleted, or that has other labels now.
    let mut ids = series_ids(labels).map_err(|error| Problem::internal(&error))?;
    let free = ids.find(|id| catalog.channel(*id).is_none());
    let id = free.unwrap_or_else(|| clock.new_id());
    let mut refusal = String::new();
    // Different labels may make the same name, and users choose names, too.
    for name in [fitting(&name, &written), with_digest(&name, &written)] {
        let metadata = context.metadata(user.actor(), &format!("create channel {id} {name}"));
        let spec = ChannelSpec { labels: labels.clone(), ..ChannelSpec::new(name, ChannelType::Sensor) };
        let command = ChannelCommand::Create(NewChannel { number: 0, owner: user.id, spec });
        let Err(rejection) = commands.write::<Channel>(id, None, &metadata, &command).await else {
            return Ok(Ok(()));
        };
        match (rejection.kind, rejection.code.as_str()) {
            (ErrorKind::Unavailable, _) => return Err(rejection.into()),
            (_, "event_exists") => {
                gate.shows::<Channel>(id).await?;
                return Ok(Ok(()));
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
