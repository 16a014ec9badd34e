use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::memory::Memory;
/// Hashes of valid tokens that are noted at most; then all are forgotten.
const MAX_SEEN: usize = 100_000;

/// Answers of the read model about tokens, by their hashes. Those about made-up tokens are kept apart, so that no number of
/// them displaces an answer about a token that exists.
#[derive(Debug)]
pub(super) struct Answers<V> {
    valid: Memory<String, V>,
    void: Memory<String, ()>,
    /// Tokens that were valid when they were looked up last.
    seen: Mutex<HashSet<String>>,
}

impl<V> Default for Answers<V> {
    fn default() -> Self {
        Self { valid: Memory::default(), void: Memory::default(), seen: Mutex::default() }
    }
}

impl<V: Clone> Answers<V> {
    pub(super) fn recall(&self, hash: &str, now: Duration) -> Option<Option<V>> {
        match self.valid.recall(hash, now) {
            Some(answer) => Some(Some(answer)),
            None => self.void.recall(hash, now).map(|()| None),
        }
    }

    pub(super) fn remember(&self, hash: String, answer: Option<V>, now: Duration) {
        let mut seen = self.seen();
        let Some(answer) = answer else {
            seen.remove(&hash);
            self.valid.forget(&hash);
            return self.void.remember(hash, (), now);
        };
        if seen.len() >= MAX_SEEN {
            seen.clear();
        }
        seen.insert(hash.clone());
        self.void.forget(&hash);
        self.valid.remember(hash, answer, now);
    }

    pub(super) fn forget(&self, hash: &String) {
        self.valid.forget(hash);
        self.void.forget(hash);
    }

    pub(super) fn clear(&self) {
        self.valid.clear();
        self.void.clear();
    }

    /// Whether the database has to be asked about a token that may be made up.
    pub(super) fn is_stranger(&self, hash: &str, now: Duration) -> bool {
        !self.seen().contains(hash) && self.recall(hash, now).is_none()
    }

    fn seen(&self) -> MutexGuard<'_, HashSet<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_up_tokens_displace_no_valid_one() {
        let (answers, now) = (Answers::default(), Duration::from_secs(1000));
        answers.remember("valid".to_owned(), Some(7), now);
        for made_up in 0..250_000 {
            answers.remember(made_up.to_string(), None, now);
        }
        assert_eq!(answers.recall("valid", now), Some(Some(7)));
        assert_eq!(answers.recall("249999", now), Some(None));
    }

    #[test]
    fn only_tokens_that_were_never_valid_are_strangers() {
        let (answers, now) = (Answers::default(), Duration::from_secs(1000));
        assert!(answers.is_stranger("a", now));
        answers.remember("a".to_owned(), Some(7), now);
        answers.clear();
        assert!(!answers.is_stranger("a", now));
        answers.remember("a".to_owned(), None, now);
        assert!(!answers.is_stranger("a", now), "the answer is remembered");
        answers.clear();
        assert!(answers.is_stranger("a", now));
    }
}
