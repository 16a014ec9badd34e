//! Channels and experiments in memory, so that a batch is checked without asking the database. Channels are found by their ids and
//! by their labels.
//!
//! Kept fresh by the log: each use applies the changes that the read model has applied since, as far as this gateway
//! knows. An unknown channel is looked up before it is refused.

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use rpds::HashTrieMapSync;
use signalbox_clock::Clock;
use signalbox_domain::monitoring::Labels;
use signalbox_projections::{
    Progress, Projection,
    monitoring::{
        ChannelRow, MonitoringProjection,
        queries::{ExperimentSpan, HeldState, channels_since, experiment_spans},
    },
    progress,
};
use sqlx::PgPool;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::services::{consistency::ReadGate, series_ids::is_made_for_series};

/// Without a wake-up it is brought up to date so often.
const MAX_AGE: Duration = Duration::from_secs(1);

/// A channel as datapoints refer to it.
#[derive(Debug, Clone)]
pub(crate) struct KnownChannel {
    pub(crate) id: Uuid,
    /// The id as clients see it.
    pub(crate) public_id: String,
    pub(crate) number: i32,
    pub(crate) name: String,
    pub(crate) unit: Option<String>,
    pub(crate) labels: Arc<Labels>,
    /// Whether it takes no more values.
    pub(crate) is_deleted: bool,
    /// Whether it counts against `ingest.max_channels`.
    pub(crate) is_made_for_series: bool,
}

impl KnownChannel {
    /// The labels that it is found by.
    fn found_by(&self) -> Option<&Labels> {
        (!self.is_deleted && !self.labels.is_empty()).then_some(&*self.labels)
    }
}

/// All channels and experiments at one moment. Its maps share what has not changed with those of the moment before, so that a new
/// channel among very many costs no copy of all of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    by_id: HashTrieMapSync<Uuid, Arc<KnownChannel>>,
    by_number: HashTrieMapSync<i32, Arc<KnownChannel>>,
    /// Numbers of channels with labels, but deleted ones, by all of their labels.
    by_labels: HashTrieMapSync<Arc<Labels>, Vec<i32>>,
    /// Grows when labels may lead to another channel than before, or to no channel: then it must not be remembered where they led.
    labelling: u64,
    /// Channels that were made for series, but deleted ones.
    made_for_series: usize,
    /// By start.
    experiments: Vec<ExperimentSpan>,
    /// Newest event of a channel that is known.
    newest: i64,
    /// The read model's applied position.
    position: i64,
    /// Of the read model's rows: with another one, rows may have changed that have old positions.
    revision: i64,
}

/// The catalog of this gateway.
#[derive(Debug)]
pub(crate) struct Catalogs {
    pool: PgPool,
    clock: Clock,
    gate: Arc<ReadGate>,
    /// With the clock's monotonic time when loading it began.
    current: RwLock<(Arc<Catalog>, Option<Duration>)>,
    /// Held by the one who loads.
    loading: Mutex<()>,
    /// Held by the request that makes channels for series, so that their number is counted right.
    pub(crate) making: Mutex<()>,
}

impl Catalog {
    /// The channel `id`, unless it was deleted.
    pub(crate) fn live_channel(&self, id: Uuid) -> Option<&KnownChannel> {
        self.by_id.get(&id).map(Arc::as_ref).filter(|channel| !channel.is_deleted)
    }

    /// The channel `id`, deleted or not.
    pub(crate) fn channel(&self, id: Uuid) -> Option<&KnownChannel> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    /// All channels that take values.
    pub(crate) fn live_channels(&self) -> impl Iterator<Item = &Arc<KnownChannel>> {
        self.by_number.values().filter(|channel| !channel.is_deleted)
    }

    /// The channel that `number` stands for.
    pub(crate) fn numbered(&self, number: i32) -> Option<&KnownChannel> {
        self.by_number.get(&number).map(Arc::as_ref)
    }

    /// The channel with exactly these labels, unless it was deleted; of several, the oldest.
    pub(crate) fn labelled(&self, labels: &Labels) -> Option<&KnownChannel> {
        let oldest = self.by_labels.get(labels)?.iter().min()?;
        self.numbered(*oldest)
    }

    /// Catalogs of the same labelling find the same channel for labels, unless they find none.
    pub(crate) fn labelling(&self) -> u64 {
        self.labelling
    }

    /// The state of the read model that it shows.
    pub(crate) fn held(&self) -> HeldState {
        HeldState { position: self.position, revision: self.revision }
    }

    /// Channels that were made for series; those of users are not counted, whatever their labels.
    pub(crate) fn count_series(&self) -> usize {
        self.made_for_series
    }

    /// The experiment that ran at `time`; only one does. One that is running contains what was measured until `now`.
    pub(crate) fn experiment_at(&self, time: DateTime<Utc>, now: DateTime<Utc>) -> Option<&ExperimentSpan> {
        let after = self.experiments.partition_point(|span| span.started_at <= time);
        let span = self.experiments[..after].last()?;
        (time < Self::end_of(span, now)).then_some(span)
    }

    /// Before when the points of `span` were measured, at the moment `now`.
    pub(crate) fn end_of(span: &ExperimentSpan, now: DateTime<Utc>) -> DateTime<Utc> {
        span.stopped_at.unwrap_or(now + TimeDelta::microseconds(1))
    }

    /// The experiment `id`.
    pub(crate) fn experiment(&self, id: Uuid) -> Option<&ExperimentSpan> {
        self.experiments.iter().find(|span| span.id == id)
    }

    /// One of another labelling.
    #[cfg(test)]
    pub(crate) fn relabelled(labelling: u64) -> Self {
        Self { labelling, ..Self::default() }
    }

    fn take_in(&mut self, row: ChannelRow) {
        let (labels, is_deleted) = (row.labels.0, row.deleted_at.is_some());
        let channel = Arc::new(KnownChannel {
            id: row.id.0,
            public_id: row.id.to_string(),
            number: row.number,
            name: row.name,
            unit: row.unit,
            is_made_for_series: !is_deleted && is_made_for_series(row.id.0, &labels),
            labels: Arc::new(labels),
            is_deleted,
        });
        self.newest = self.newest.max(row.position);
        let before = self.by_id.get(&channel.id).cloned();
        self.index_labels(&channel, before.as_deref());
        let counted = |channel: &KnownChannel| usize::from(channel.is_made_for_series);
        self.made_for_series += counted(&channel);
        self.made_for_series -= before.as_deref().map_or(0, counted);
        self.by_number.insert_mut(channel.number, channel.clone());
        self.by_id.insert_mut(channel.id, channel);
    }

    /// Has `channel` found by its labels, and no longer by those that it had `before`.
    fn index_labels(&mut self, channel: &KnownChannel, before: Option<&KnownChannel>) {
        let number = channel.number;
        if before.is_some_and(|before| before.found_by() == channel.found_by()) {
            return;
        }
        if let Some(before) = before
            && let Some(numbers) = self.by_labels.get_mut(&before.labels)
        {
            self.labelling += 1;
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.by_labels.remove_mut(&before.labels);
            }
        }
        if channel.found_by().is_none() {
            return;
        }
        match self.by_labels.get_mut(&channel.labels) {
            Some(numbers) => {
                self.labelling += 1;
                numbers.push(number);
            }
            None => self.by_labels.insert_mut(Arc::clone(&channel.labels), vec![number]),
        }
    }
}

impl Catalogs {
    pub(crate) fn new(pool: PgPool, clock: Clock, gate: Arc<ReadGate>) -> Self {
        let (current, loading, making) = Default::default();
        Self { pool, clock, gate, current, loading, making }
    }

    /// The catalog with all that this gateway has heard of.
    pub(crate) async fn fresh(&self) -> Result<Arc<Catalog>, sqlx::Error> {
        let (current, loaded) = self.current();
        let is_fresh = current.position >= self.gate.known(MonitoringProjection::NAME)
            && loaded.is_some_and(|loaded| self.clock.monotonic().saturating_sub(loaded) < MAX_AGE);
        if is_fresh { Ok(current) } else { self.load(loaded).await }
    }

    /// The catalog as the read model is now.
    pub(crate) async fn newest(&self) -> Result<Arc<Catalog>, sqlx::Error> {
        self.load(Some(self.clock.monotonic())).await
    }

    fn current(&self) -> (Arc<Catalog>, Option<Duration>) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads what has changed, unless somebody else has begun to after `since`.
    async fn load(&self, since: Option<Duration>) -> Result<Arc<Catalog>, sqlx::Error> {
        let _alone = self.loading.lock().await;
        let (current, loaded) = self.current();
        let heard = self.gate.known(MonitoringProjection::NAME);
        if loaded > since && current.position >= heard {
            return Ok(current);
        }
        let begun = Some(self.clock.monotonic());
        // Read first, so that the rows loaded after it are at least as new.
        let Progress { position, revision, .. } = progress(&self.pool, MonitoringProjection::NAME).await?;
        let position = position.max(heard);
        let is_same_revision = revision == current.revision;
        if is_same_revision && position == current.position && position > 0 {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = (current.clone(), begun);
            return Ok(current);
        }
        let mut next = if is_same_revision {
            Catalog::clone(&current)
        } else {
            Catalog { revision, labelling: current.labelling + 1, ..Catalog::default() }
        };
        for row in channels_since(&self.pool, next.newest).await? {
            next.take_in(row);
        }
        next.experiments = experiment_spans(&self.pool).await?;
        next.position = position;
        let next = Arc::new(next);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (next.clone(), begun);
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use signalbox_domain::{
        kernel::{ChannelId, UserId},
        monitoring::ChannelType,
    };
    use sqlx::types::Json;

    use super::*;
    use crate::services::series_ids::series_ids;

    fn labels(value: &str) -> Labels {
        [("_measurement".to_owned(), "m".to_owned()), ("_field".to_owned(), value.to_owned())].into()
    }

    fn id_of(labels: &Labels) -> Uuid {
        series_ids(labels).unwrap().next().unwrap()
    }

    fn row(number: i32, id: Uuid, labels: &Labels) -> ChannelRow {
        let now = DateTime::UNIX_EPOCH;
        ChannelRow {
            id: ChannelId(id),
            number,
            owner_id: UserId(Uuid::nil()),
            name: number.to_string(),
            channel_type: ChannelType::Sensor.into(),
            unit: None,
            min_value: None,
            max_value: None,
            labels: Json(labels.clone()),
            description: None,
            retention_days: None,
            deleted_at: None,
            values_deleted: false,
            version: 1,
            position: number.into(),
            created_at: now,
            updated_at: now,
        }
    }

    /// How long the catalog takes to know 100 more channels, one after the other, when it has `channels`.
    fn time_of_growth(channels: i32) -> Duration {
        let new = |number: i32| {
            let labels = labels(&number.to_string());
            row(number, id_of(&labels), &labels)
        };
        let mut catalog = Catalog::default();
        (0..channels).for_each(|number| catalog.take_in(new(number)));
        let rows: Vec<_> = (channels..channels + 100).map(new).collect();
        let mut held = Arc::new(catalog);
        let begun = Instant::now();
        for row in rows {
            let mut next = Catalog::clone(&held);
            next.take_in(row);
            assert_eq!(next.count_series(), usize::try_from(next.newest).unwrap() + 1);
            held = Arc::new(next);
        }
        begun.elapsed()
    }

    #[test]
    fn a_new_channel_among_many_costs_what_it_costs_among_few() {
        let best = |channels| (0..3).map(|_| time_of_growth(channels)).min().unwrap();
        let (few, many) = (best(500), best(50_000));
        eprintln!("100 new channels: {few:?} among 500, {many:?} among 50,000");
        assert!(many < few * 10, "100 new channels: {few:?} among 500, {many:?} among 50,000");
    }

    #[test]
    fn the_labelling_changes_when_labels_may_lead_elsewhere() {
        let mut catalog = Catalog::default();
        let (a, b) = (labels("a"), labels("b"));
        let mut labelling_after = |row: ChannelRow| {
            catalog.take_in(row);
            catalog.labelling()
        };
        let first = labelling_after(row(2, Uuid::from_u128(2), &a));
        assert_eq!(labelling_after(row(3, Uuid::from_u128(3), &b)), first, "new labels led nowhere before");
        let renamed = ChannelRow { name: "new".to_owned(), ..row(2, Uuid::from_u128(2), &a) };
        assert_eq!(labelling_after(renamed), first);
        assert_eq!(labelling_after(row(4, Uuid::from_u128(4), &Labels::new())), first);
        let second = labelling_after(row(1, Uuid::from_u128(1), &a));
        assert!(second > first, "an older channel has the same labels");
        let third = labelling_after(row(3, Uuid::from_u128(3), &labels("c")));
        assert!(third > second, "labels were changed");
        let deleted = ChannelRow { deleted_at: Some(DateTime::UNIX_EPOCH), ..row(2, Uuid::from_u128(2), &a) };
        assert!(labelling_after(deleted) > third);
    }

    #[test]
    fn channels_of_series_are_counted_as_they_come_and_go() {
        let mut catalog = Catalog::default();
        let (a, b) = (labels("a"), labels("b"));
        catalog.take_in(row(1, id_of(&a), &a));
        catalog.take_in(row(2, id_of(&b), &b));
        catalog.take_in(row(3, Uuid::from_u128(0x018f_0000_0000_7000_8000_0000_0000_0001), &b));
        assert_eq!(catalog.count_series(), 2, "one of a user has the labels of a series");
        let earlier = catalog.clone();
        catalog.take_in(row(1, id_of(&a), &a));
        assert_eq!(catalog.count_series(), 2);
        catalog.take_in(row(1, id_of(&a), &labels("c")));
        assert_eq!(catalog.count_series(), 1, "a user gave it other labels");
        assert!(catalog.labelled(&a).is_none() && catalog.labelled(&labels("c")).is_some());
        catalog.take_in(ChannelRow { deleted_at: Some(DateTime::UNIX_EPOCH), ..row(2, id_of(&b), &b) });
        assert_eq!(catalog.count_series(), 0);
        assert_eq!(catalog.labelled(&b).map(|channel| channel.number), Some(3));
        assert_eq!(earlier.count_series(), 2);
        assert!(earlier.labelled(&a).is_some(), "an earlier catalog stays as it was");
    }
}
