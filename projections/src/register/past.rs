//! A resource at a position of the log: its events up to that position are folded by the same code that writes its
//! row, so a historical row is computed like the current one. Nothing is written.

use signalbox_boxed::boxed;
use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::{
    kernel::{Decider, KindOf, words_of},
    monitoring::Channel,
};
use signalbox_event_store::{
    Moment, RecordedEvent, StreamSlice, head_position, position_before, read_streams, stream_position,
    time_of,
};
use sqlx::PgPool;
use uuid::Uuid;

use super::{
    StateError,
    state::{BATCH, MAX_EVENTS},
};
use crate::{Rows, table::ReadRow};

/// A place in the log, and when that was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// Position of the last event that counts.
    pub position: i64,
    /// Nothing counts that was recorded later.
    pub time: DateTime<Utc>,
}

/// Why a moment has no place in the log.
#[derive(Debug, thiserror::Error)]
pub enum AtError {
    /// The time is in the future.
    #[error("at must not be in the future")]
    Future,
    /// The database failed.
    #[error("the log cannot be read: {0}")]
    Database(#[from] sqlx::Error),
}

impl At {
    /// Where `moment` is in the log; it is `now`.
    ///
    /// # Errors
    /// [`AtError`].
    #[boxed]
    pub async fn find(pool: &PgPool, moment: Moment, now: DateTime<Utc>) -> Result<Self, AtError> {
        match moment {
            Moment::Now => Ok(Self { position: head_position(pool).await?, time: now }),
            Moment::Time(time) if time > now => Err(AtError::Future),
            // Times are recorded in microseconds; events of this microsecond count.
            Moment::Time(time) => {
                Ok(Self { position: position_before(pool, time + TimeDelta::microseconds(1)).await?, time })
            }
            // Before the first event there is nothing.
            Moment::Position(position) if position < 1 => {
                Ok(Self { position: 0, time: DateTime::<Utc>::UNIX_EPOCH })
            }
            Moment::Position(position) => {
                let time = time_of(pool, position).await?.ok_or(AtError::Future)?;
                Ok(Self { position, time })
            }
        }
    }
}

/// A resource at a point in time.
#[derive(Debug, Clone, PartialEq)]
pub enum Past<T> {
    /// It existed.
    Present(T),
    /// It had been deleted.
    Deleted,
    /// It had not been created yet.
    NotYetCreated,
    /// It has never existed.
    Unknown,
}

impl<T> Past<T> {
    /// Converts a present resource.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Past<U> {
        match self {
            Self::Present(row) => Past::Present(change(row)),
            Self::Deleted => Past::Deleted,
            Self::NotYetCreated => Past::NotYetCreated,
            Self::Unknown => Past::Unknown,
        }
    }
}

/// A row that follows from the events of one aggregate.
pub trait Resource: ReadRow + Clone {
    /// The aggregate that emits the events.
    type Aggregate: Decider;
    /// The projection's rows that it is one of.
    type Rows: Rows;

    /// Whether there may be very many events of `kind`, of which the newest alone leaves a trace in the row.
    fn is_passing(kind: KindOf<Self::Aggregate>) -> bool;

    /// Words of the kinds that are passing.
    fn passing() -> Vec<&'static str> {
        words_of(Self::is_passing)
    }

    /// The row `id`; `None` when it is gone.
    fn of(rows: &Self::Rows, id: Uuid) -> Option<&Self>;
}

/// The resource `id` at a point in time.
///
/// # Errors
/// [`StateError`].
pub async fn past<R: Resource>(pool: &PgPool, id: Uuid, at: At) -> Result<Past<R>, StateError> {
    let mut rows = R::Rows::default();
    let was_created = fold_stream_slice::<R>(pool, &mut rows, id, at, Vec::new()).await?;
    found::<R, _>(pool, id, was_created, R::of(&rows, id).cloned()).await
}

/// The resource `id` at a point in time, whose folded row is `row`.
pub(crate) async fn found<R: Resource, T>(
    pool: &PgPool,
    id: Uuid,
    was_created: bool,
    row: Option<T>,
) -> Result<Past<T>, StateError> {
    Ok(match row {
        Some(row) => Past::Present(row),
        None if was_created => Past::Deleted,
        None if stream_position(pool, R::Aggregate::TYPE, id).await?.is_some() => Past::NotYetCreated,
        None => Past::Unknown,
    })
}

/// Folds the events of the resource `id`, and the events of other aggregates in `others` that change its row, by position; returns whether
/// it had any event.
pub(crate) async fn fold_stream_slice<R: Resource>(
    pool: &PgPool,
    rows: &mut R::Rows,
    id: Uuid,
    at: At,
    others: Vec<RecordedEvent>,
) -> Result<bool, StateError> {
    let passing = R::passing();
    let slice = StreamSlice { aggregate_type: R::Aggregate::TYPE, id, until: at.position, without: &passing };
    let mut others: Vec<_> = others.into_iter().filter(|event| event.position <= at.position).collect();
    others.extend(slice.newest_left_out(pool).await?);
    others.sort_unstable_by_key(|event| event.position);
    let mut others = others.into_iter().peekable();
    let (mut version, mut count) = (0, 0);
    loop {
        let events = slice.read_after(pool, version, BATCH).await?;
        for event in &events {
            while let Some(other) = others.next_if(|other| other.position < event.position) {
                rows.apply(&other, R::Rows::decode(&other)?);
            }
            rows.apply(event, R::Rows::decode(event)?);
            version = event.sequence;
        }
        count += events.len() as i64;
        if (events.len() as i64) < BATCH {
            break;
        }
        if count >= MAX_EVENTS {
            return Err(StateError::TooLong);
        }
    }
    for other in others {
        rows.apply(&other, R::Rows::decode(&other)?);
    }
    Ok(count > 0)
}

/// The deleted ones among `channels`; links to them are removed.
pub(crate) async fn deleted_channels(
    pool: &PgPool,
    channels: impl IntoIterator<Item = Uuid>,
    at: At,
) -> Result<HashSet<Uuid>, sqlx::Error> {
    let channels: Vec<_> = HashSet::<Uuid>::from_iter(channels).into_iter().collect();
    if channels.is_empty() {
        return Ok(HashSet::new());
    }
    let deletions = read_streams(pool, Channel::TYPE, &channels, &["channel_deleted"]).await?;
    let until_then = deletions.events.into_iter().filter(|event| event.position <= at.position);
    Ok(until_then.map(|event| event.aggregate_id).collect())
}
