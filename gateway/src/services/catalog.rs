//! Channels and experiments in memory, so that a batch is checked without asking the database. Channels are found by their ids and
//! by their labels.
//!
//! Kept fresh by the log: each use applies the changes that the read model has applied since, as far as this gateway
//! knows. An unknown channel is looked up before it is refused.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_clock::Clock;
use signalbox_domain::monitoring::Labels;
use signalbox_projections::{
    Progress, Projection,
    monitoring::{
        ChannelRow, MonitoringProjection,
        queries::{ExperimentSpan, channels_since, experiment_spans},
    },
    progress,
};
use sqlx::PgPool;
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::services::consistency::ReadGate;

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
}

/// All channels and experiments at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    by_id: HashMap<Uuid, Arc<KnownChannel>>,
    by_number: HashMap<i32, Arc<KnownChannel>>,
    /// Numbers of channels with labels, but deleted ones, by all of their labels.
    by_labels: HashMap<Arc<Labels>, Vec<i32>>,
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
    pub(crate) fn live_channels(&self) -> impl Iterator<Item = &KnownChannel> {
        self.by_number.values().map(Arc::as_ref).filter(|channel| !channel.is_deleted)
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

    /// Channels that have the labels of a series of another system.
    pub(crate) fn count_series(&self) -> usize {
        let is_series = |labels: &Labels| labels.contains_key("_field") || labels.contains_key("__name__");
        let series = self.by_labels.iter().filter(|(labels, _)| is_series(labels));
        series.map(|(_, numbers)| numbers.len()).sum()
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

    fn take_in(&mut self, row: ChannelRow) {
        let channel = Arc::new(KnownChannel {
            id: row.id,
            public_id: row.id.to_string(),
            number: row.number,
            name: row.name,
            unit: row.unit,
            labels: Arc::new(row.labels.0),
            is_deleted: row.deleted_at.is_some(),
        });
        self.newest = self.newest.max(row.position);
        self.index_labels(&channel);
        self.by_number.insert(channel.number, channel.clone());
        self.by_id.insert(channel.id, channel);
    }

    /// Has `channel` found by its labels, and no longer by those that it had.
    fn index_labels(&mut self, channel: &KnownChannel) {
        let number = channel.number;
        let before = self.by_id.get(&channel.id).map(|before| Arc::clone(&before.labels));
        if let Some(before) = before
            && let Some(numbers) = self.by_labels.get_mut(&before)
        {
            numbers.retain(|known| *known != number);
            if numbers.is_empty() {
                self.by_labels.remove(&before);
            }
        }
        if !channel.is_deleted && !channel.labels.is_empty() {
            self.by_labels.entry(Arc::clone(&channel.labels)).or_default().push(number);
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
        // Read first: what is loaded after it is at least as new.
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
            Catalog { revision, ..Catalog::default() }
        };
        for row in channels_since(&self.pool, current.newest).await? {
            next.take_in(row);
        }
        next.experiments = experiment_spans(&self.pool).await?;
        next.position = position;
        let next = Arc::new(next);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (next.clone(), begun);
        Ok(next)
    }
}
