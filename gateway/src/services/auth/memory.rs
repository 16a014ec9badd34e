use std::{
    borrow::Borrow,
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How long an answer is remembered: revocations are in force everywhere within a second.
const MEMORY: Duration = Duration::from_millis(800);
/// Answers remembered at most; then all are forgotten.
const MAX_REMEMBERED: usize = 100_000;

/// Answers of the read model about credentials, remembered for less than a second. Their age is counted by the clock's
/// monotonic time: with the wall clock, a revocation had no effect for as long as the clock was set back.
#[derive(Debug)]
pub(super) struct Memory<K, V>(Mutex<HashMap<K, Remembered<V>>>);

#[derive(Debug)]
struct Remembered<V> {
    at: Duration,
    answer: V,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, V: Clone> Memory<K, V> {
    pub(super) fn recall<Q: Eq + Hash + ?Sized>(&self, key: &Q, now: Duration) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.entries()
            .get(key)
            .filter(|known| now.saturating_sub(known.at) < MEMORY)
            .map(|known| known.answer.clone())
    }

    pub(super) fn remember(&self, key: K, answer: V, now: Duration) {
        let mut entries = self.entries();
        if entries.len() >= MAX_REMEMBERED {
            entries.clear();
        }
        entries.insert(key, Remembered { at: now, answer });
    }

    pub(super) fn forget(&self, key: &K) {
        self.entries().remove(key);
    }

    pub(super) fn clear(&self) {
        self.entries().clear();
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<K, Remembered<V>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;
    use signalbox_clock::Clock;

    use super::*;

    #[test]
    fn an_answer_is_forgotten_although_the_clock_was_set_back() {
        let (memory, clock) = (Memory::default(), Clock::shifted(TimeDelta::hours(6)));
        let then = clock.monotonic();
        memory.remember(1, "live", then);
        clock.advance(TimeDelta::hours(-6));
        assert_eq!(memory.recall(&1, clock.monotonic().max(then + MEMORY)), None);
        assert_eq!(memory.recall(&1, then), Some("live"));
    }
}
