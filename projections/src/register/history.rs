//! The versions of a resource that users have made.

use signalbox_domain::kernel::{Decider, KindOf, words_of};
use signalbox_event_store::{RecordedEvent, read_kinds, time_of, version_position};
use sqlx::PgPool;
use uuid::Uuid;

use super::{At, Resource, StateError, state::MAX_EVENTS};
use crate::{Order, Page, Rows};

/// A resource whose earlier versions can be looked at and brought back.
pub trait Kept: Resource {
    /// Whether users change it by events of `kind`; all others make no version.
    fn makes_version(kind: KindOf<Self::Aggregate>) -> bool;

    /// Words of the kinds that make a version.
    fn changes() -> Vec<&'static str> {
        words_of(Self::makes_version)
    }
}

/// A version, and the one before it.
#[derive(Debug)]
pub struct Version<T> {
    /// The event that made it.
    pub event: RecordedEvent,
    /// The resource before the change; `None` before its creation.
    pub before: Option<T>,
    /// The resource after the change; `None` after its deletion.
    pub after: Option<T>,
}

/// A page of the versions of the resource `id` as `show` shows them, and how many there are.
///
/// # Errors
/// [`StateError`].
pub async fn history<R: Kept, T: Clone>(
    pool: &PgPool,
    id: Uuid,
    (order, page): (Order, Page),
    show: impl Fn(&R::Rows, Uuid) -> Option<T>,
) -> Result<(Vec<Version<T>>, i64), StateError> {
    let events = read_kinds(pool, R::Aggregate::TYPE, id, &R::changes(), MAX_EVENTS + 1).await?;
    let total = events.len() as i64;
    if total > MAX_EVENTS {
        return Err(StateError::TooLong);
    }
    let (first, last) = if order.is_descending() {
        let last = (total - page.offset).max(0);
        ((last - page.limit).max(0), last)
    } else {
        let first = page.offset.min(total);
        (first, (first + page.limit).min(total))
    };
    let (mut rows, mut versions, mut before) = (R::Rows::default(), Vec::new(), None);
    for (event, index) in events.into_iter().zip(0..last) {
        rows.apply(&event, R::Rows::decode(&event)?);
        // Of earlier versions nothing is shown but the last one, to compare with.
        if index + 1 < first {
            continue;
        }
        let after = show(&rows, id);
        if index >= first {
            versions.push(Version { event, before, after: after.clone() });
        }
        before = after;
    }
    if order.is_descending() {
        versions.reverse();
    }
    Ok((versions, total))
}

/// Where `version` of the resource `id` is in the log; `None` when it has no such version.
///
/// # Errors
/// The database's error.
pub async fn place_of<R: Resource>(pool: &PgPool, id: Uuid, version: i64) -> Result<Option<At>, sqlx::Error> {
    let Some(position) = version_position(pool, R::Aggregate::TYPE, id, version).await? else {
        return Ok(None);
    };
    let time = time_of(pool, position).await?;
    Ok(time.map(|time| At { position, time }))
}
