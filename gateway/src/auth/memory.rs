use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, TimeDelta, Utc};

/// How long an answer is remembered: revocations are in force everywhere within a second.
const MEMORY: TimeDelta = TimeDelta::milliseconds(800);
/// Answers remembered at most; then all are forgotten.
const MAX_REMEMBERED: usize = 100_000;

/// Answers of the read model about credentials, remembered for less than a second.
#[derive(Debug)]
pub(super) struct Memory<K, V>(Mutex<HashMap<K, Remembered<V>>>);

#[derive(Debug)]
struct Remembered<V> {
    at: DateTime<Utc>,
    answer: V,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    pub(super) fn recall<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: DateTime<Utc>) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries().get(key).filter(|known| now - known.at < MEMORY).map(|known| known.answer.clone())
    }

    pub(super) fn remember(&self, key: K, answer: V, now: DateTime<Utc>) {
        let mut entries = self.entries();
        if entries.len() >= MAX_REMEMBERED {
            entries.clear();
        }
        entries.insert(key, Remembered { at: now, answer });
    }

    pub(super) fn forget(&self, key: &K) {
        self.entries().remove(key);
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Remembered<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
