//! Items that a worker has tried as their rows are: each is left out until its row changes, or for a growing time.
//!
//! A command that was carried out shows in the read model a moment later. Where it never does, because the command is not
//! taken or the row's stream was set aside, the item stays first among those that are due, and a batch of such items would
//! keep all others waiting. For economy only: the item is due until its row says otherwise.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use uuid::Uuid;

/// Backoff after the first try; it doubles with each further one while the row stays as it is.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// How long after its retry was due an item is forgotten that is not tried again: it is no longer to be done.
const STALE: Duration = Duration::from_secs(120);

/// Items that were tried. `M` changes with an item's row.
#[derive(Debug)]
pub(crate) struct Tried<M>(Mutex<HashMap<Uuid, Try<M>>>);

#[derive(Debug)]
struct Try<M> {
    mark: M,
    retry_at: Instant,
    backoff: Duration,
}

impl<M> Default for Tried<M> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<M: PartialEq> Tried<M> {
    /// How many items may have to be left out now: a query for a batch reads as many rows more.
    pub(crate) fn count(&self) -> usize {
        let now = Instant::now();
        let mut items = self.items();
        items.retain(|_, item| now.saturating_duration_since(item.retry_at) < STALE);
        items.values().filter(|item| now < item.retry_at).count()
    }

    /// Whether item `id` was tried a moment ago, and its row is still the one with `mark`.
    pub(crate) fn holds(&self, id: Uuid, mark: &M) -> bool {
        self.items().get(&id).is_some_and(|item| item.mark == *mark && Instant::now() < item.retry_at)
    }

    /// Notes that item `id` was tried when its row had `mark`.
    pub(crate) fn note(&self, id: Uuid, mark: M) {
        let mut items = self.items();
        let before = items.get(&id).filter(|item| item.mark == mark);
        let backoff = before.map_or(FIRST_BACKOFF, |item| (item.backoff * 2).min(MAX_BACKOFF));
        items.insert(id, Try { mark, retry_at: Instant::now() + backoff, backoff });
    }

    fn items(&self) -> MutexGuard<'_, HashMap<Uuid, Try<M>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_left_out_until_its_row_changes() {
        let (tried, id) = (Tried::<i64>::default(), Uuid::from_u128(7));
        assert!(!tried.holds(id, &1));
        tried.note(id, 1);
        assert!(tried.holds(id, &1) && !tried.holds(id, &2));
        assert_eq!(tried.count(), 1);
    }

    #[test]
    fn tries_without_effect_become_rarer() {
        let (tried, id) = (Tried::<i64>::default(), Uuid::from_u128(7));
        let backoff = || tried.items()[&id].backoff;
        tried.note(id, 1);
        assert_eq!(backoff(), FIRST_BACKOFF);
        for _ in 0..10 {
            tried.note(id, 1);
        }
        assert_eq!(backoff(), MAX_BACKOFF);
        tried.note(id, 2);
        assert_eq!(backoff(), FIRST_BACKOFF);
    }
}
