//! Channels and experiments in memory, so that a batch is checked without asking the database.
//!
//! Kept fresh by the log: whoever uses it takes in what the read model has applied since, as far as this gateway has
//! heard. A channel that is not known is looked up before it is refused.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_projections::{
    Projection, checkpoint,
    monitoring::{
        ChannelRow, MonitoringProjection,
        queries::{ExperimentSpan, channels_since, experiment_spans},
    },
};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::state::State;

/// Without a wake-up it is brought up to date so often.
const DOUBT: TimeDelta = TimeDelta::seconds(1);

/// A channel as datapoints refer to it.
#[derive(Debug, Clone)]
pub(crate) struct KnownChannel {
    pub(crate) id: Uuid,
    /// The id as clients see it.
    pub(crate) public_id: String,
    pub(crate) number: i32,
    pub(crate) name: String,
    pub(crate) unit: Option<String>,
    /// Whether it takes no more values.
    pub(crate) is_deleted: bool,
}

/// All channels and experiments at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Catalog {
    by_id: HashMap<Uuid, Arc<KnownChannel>>,
    by_number: HashMap<i32, Arc<KnownChannel>>,
    /// By start.
    experiments: Vec<ExperimentSpan>,
    /// Newest event of a channel that is known.
    newest: i64,
    /// What the read model had applied.
    position: i64,
}

/// The catalog of this gateway.
#[derive(Debug, Default)]
pub(crate) struct Catalogs {
    current: RwLock<(Arc<Catalog>, DateTime<Utc>)>,
    /// Held by the one who loads.
    loading: Mutex<()>,
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

    /// The channel that `number` stands for.
    pub(crate) fn numbered(&self, number: i32) -> Option<&KnownChannel> {
        self.by_number.get(&number).map(Arc::as_ref)
    }

    /// The experiment that ran at `time`; only one does.
    pub(crate) fn experiment_at(&self, time: DateTime<Utc>) -> Option<&ExperimentSpan> {
        let after = self.experiments.partition_point(|span| span.started_at <= time);
        let span = self.experiments[..after].last()?;
        span.stopped_at.is_none_or(|stopped| time < stopped).then_some(span)
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
            is_deleted: row.deleted_at.is_some(),
        });
        self.newest = self.newest.max(row.position);
        self.by_number.insert(channel.number, channel.clone());
        self.by_id.insert(channel.id, channel);
    }
}

impl Catalogs {
    /// The catalog with all that this gateway has heard of.
    pub(crate) async fn fresh(&self, state: &State) -> Result<Arc<Catalog>, sqlx::Error> {
        let (current, loaded) = self.current();
        let is_fresh = current.position >= state.gate.known(MonitoringProjection::NAME)
            && state.clock.now() - loaded < DOUBT;
        if is_fresh { Ok(current) } else { self.load(state, loaded).await }
    }

    /// The catalog as the read model is now.
    pub(crate) async fn newest(&self, state: &State) -> Result<Arc<Catalog>, sqlx::Error> {
        self.load(state, state.clock.now()).await
    }

    fn current(&self) -> (Arc<Catalog>, DateTime<Utc>) {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Loads what has changed, unless somebody else has begun to after `since`.
    async fn load(&self, state: &State, since: DateTime<Utc>) -> Result<Arc<Catalog>, sqlx::Error> {
        let _alone = self.loading.lock().await;
        let (current, loaded) = self.current();
        let heard = state.gate.known(MonitoringProjection::NAME);
        if loaded > since && current.position >= heard {
            return Ok(current);
        }
        let begun = state.clock.now();
        // Read first: what is loaded after it is at least as new.
        let position = checkpoint(&state.pool, MonitoringProjection::NAME).await?.max(heard);
        if position == current.position && position > 0 {
            *self.current.write().unwrap_or_else(PoisonError::into_inner) = (current.clone(), begun);
            return Ok(current);
        }
        let mut next = Catalog::clone(&current);
        for row in channels_since(&state.pool, current.newest).await? {
            next.take_in(row);
        }
        next.experiments = experiment_spans(&state.pool).await?;
        next.position = position;
        let next = Arc::new(next);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = (next.clone(), begun);
        Ok(next)
    }
}
