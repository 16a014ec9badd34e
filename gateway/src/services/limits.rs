//! Rate limits: a token bucket per principal.
//!
//! Gateways publish the requests that they have admitted four times a second, and subtract each other's from their
//! own buckets, so that a principal gets its limit once and not once per gateway.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};

/// Buckets at most; the fullest are forgotten first, as they are most like new ones.
const MAX_BUCKETS: usize = 100_000;
/// Buckets of a report; with the longest keys, of letters that JSON writes as six, it has 800 kB, and a message may have 1 MB.
const MAX_REPORTED: usize = 500;
/// Bytes of a key. Those who choose longer ones share a bucket with all that begin alike.
const MAX_KEY: usize = 256;

/// Tokens per minute, and how many may be taken at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_minute: u32,
    pub(crate) burst: u32,
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: DateTime<Utc>,
    rate: Rate,
}

/// All buckets of this gateway.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    buckets: HashMap<String, Bucket>,
    /// Requests admitted since the last report to the other gateways.
    taken: HashMap<String, u32>,
}

impl Bucket {
    fn refill(&mut self, now: DateTime<Utc>) {
        let seconds = (now - self.at).num_milliseconds().max(0) as f64 / 1000.0;
        let refilled = self.tokens + seconds * f64::from(self.rate.per_minute) / 60.0;
        self.tokens = refilled.min(f64::from(self.rate.burst));
        self.at = now;
    }

    /// From 0, or less where other gateways took more, to 1.
    fn fill(&self) -> f64 {
        self.tokens / f64::from(self.rate.burst.max(1))
    }
}

impl Limiter {
    /// Takes one token from the bucket `key`.
    ///
    /// # Errors
    /// The seconds after which there is one again.
    pub(crate) fn take(&self, key: &str, rate: Rate, now: DateTime<Utc>) -> Result<(), u64> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = inner.bucket(key, rate, now);
        if bucket.tokens < 1.0 {
            let seconds = (1.0 - bucket.tokens) * 60.0 / f64::from(rate.per_minute);
            return Err(seconds.ceil() as u64);
        }
        bucket.tokens -= 1.0;
        *inner.taken.entry(shared_name(key, rate)).or_default() += 1;
        Ok(())
    }

    /// Takes one token from the bucket `key` also where it has none: for what cannot be refused any more. Returns the time after
    /// which the bucket no longer owes anything. Several that wait for it in turn have the limit once and not once each.
    pub(crate) fn owe(&self, key: &str, rate: Rate, now: DateTime<Utc>) -> Duration {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        *inner.taken.entry(shared_name(key, rate)).or_default() += 1;
        let bucket = inner.bucket(key, rate, now);
        bucket.tokens -= 1.0;
        let owed = (-bucket.tokens).max(0.0);
        Duration::try_from_secs_f64(owed * 60.0 / f64::from(rate.per_minute)).unwrap_or(Duration::MAX)
    }

    /// Gives back a token that was taken from the bucket `key`.
    pub(crate) fn give_back(&self, key: &str, rate: Rate, now: DateTime<Utc>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = inner.bucket(key, rate, now);
        bucket.tokens = (bucket.tokens + 1.0).min(f64::from(rate.burst));
        // Buckets that the other gateways know already fill up there by themselves.
        let name = shared_name(key, rate);
        if let Some(taken) = inner.taken.get_mut(&name) {
            *taken = taken.saturating_sub(1);
            if *taken == 0 {
                inner.taken.remove(&name);
            }
        }
    }

    /// The requests admitted since the last call, for reports to the other gateways, each of which fits into a message.
    pub(crate) fn drain_taken(&self) -> Vec<HashMap<String, u32>> {
        let taken = std::mem::take(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).taken);
        let mut taken = taken.into_iter();
        let reports =
            std::iter::from_fn(|| Some(taken.by_ref().take(MAX_REPORTED).collect::<HashMap<_, _>>()));
        reports.take_while(|report| !report.is_empty()).collect()
    }

    /// Subtracts `taken`, which another gateway has admitted. Principals that this gateway has not seen count too, or
    /// else each gateway would give them the whole limit.
    pub(crate) fn note(&self, taken: &HashMap<String, u32>, now: DateTime<Utc>) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, count) in taken {
            if let Some((key, rate)) = parse_shared_name(key) {
                inner.bucket(key, rate, now).tokens -= f64::from(*count);
            }
        }
    }
}

impl Inner {
    fn bucket(&mut self, key: &str, rate: Rate, now: DateTime<Utc>) -> &mut Bucket {
        let key = bounded(key);
        if self.buckets.len() >= MAX_BUCKETS && !self.buckets.contains_key(key) {
            self.forget_fullest(now);
        }
        let new = Bucket { tokens: f64::from(rate.burst), at: now, rate };
        let bucket = self.buckets.entry(key.to_owned()).or_insert(new);
        bucket.refill(now);
        bucket
    }

    /// Forgets the tenth of the buckets that is fullest, so that the next pass over all of them is some thousand new keys away,
    /// however empty they are.
    fn forget_fullest(&mut self, now: DateTime<Utc>) {
        let mut fill: Vec<f64> = Vec::with_capacity(self.buckets.len());
        for bucket in self.buckets.values_mut() {
            bucket.refill(now);
            fill.push(bucket.fill());
        }
        let kept = fill.len() - fill.len().div_ceil(10);
        let (_, least, _) = fill.select_nth_unstable_by(kept, f64::total_cmp);
        let (least, mut excess) = (*least, self.buckets.len() - kept);
        // Several may be as full as the one at the limit.
        self.buckets.retain(|_, bucket| {
            let is_removed = bucket.fill() >= least && excess > 0;
            excess -= usize::from(is_removed);
            !is_removed
        });
    }
}

/// The beginning of `key` that names its bucket.
fn bounded(key: &str) -> &str {
    &key[..key.floor_char_boundary(MAX_KEY)]
}

/// The name of a bucket between gateways; it contains the rate, for gateways that have to create the bucket.
fn shared_name(key: &str, rate: Rate) -> String {
    format!("{}/{} {}", rate.per_minute, rate.burst, bounded(key))
}

fn parse_shared_name(name: &str) -> Option<(&str, Rate)> {
    let (rate, key) = name.split_once(' ')?;
    let (per_minute, burst) = rate.split_once('/')?;
    Some((key, Rate { per_minute: per_minute.parse().ok()?, burst: burst.parse().ok()? }))
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    const RATE: Rate = Rate { per_minute: 60, burst: 2 };

    #[test]
    fn a_burst_is_let_through_and_then_one_per_interval() {
        let (limiter, now) = (Limiter::default(), DateTime::UNIX_EPOCH);
        assert_eq!(limiter.take("a", RATE, now), Ok(()));
        assert_eq!(limiter.take("a", RATE, now), Ok(()));
        assert_eq!(limiter.take("a", RATE, now), Err(1));
        assert_eq!(limiter.take("b", RATE, now), Ok(()));
        assert_eq!(limiter.take("a", RATE, now + TimeDelta::seconds(1)), Ok(()));
    }

    #[test]
    fn waiting_users_of_one_bucket_share_its_limit() {
        let (limiter, start) = (Limiter::default(), DateTime::UNIX_EPOCH);
        let mut due = [start; 50];
        let end = start + TimeDelta::seconds(100);
        let mut taken = 0;
        while let Some(next) = due.iter_mut().min().filter(|next| **next < end) {
            taken += 1;
            *next += TimeDelta::from_std(limiter.owe("a", RATE, *next)).unwrap();
        }
        assert!((100..=102 + due.len()).contains(&taken), "{taken} were taken in 100 s at one a second");
        assert!(limiter.take("a", RATE, end).is_err(), "requests find it empty");
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let (limiter, now) = (Limiter::default(), DateTime::UNIX_EPOCH);
        for _ in 0..10 {
            assert_eq!(limiter.take("a", RATE, now), Ok(()));
            limiter.give_back("a", RATE, now);
        }
        assert_eq!(limiter.drain_taken(), Vec::new());
        limiter.give_back("a", RATE, now);
        assert_eq!(limiter.take("a", RATE, now), Ok(()));
        assert_eq!(limiter.take("a", RATE, now), Ok(()));
        assert_eq!(limiter.take("a", RATE, now), Err(1), "no more than a burst");
    }

    #[test]
    fn buckets_are_bounded_although_none_is_full() {
        let (limiter, now) = (Limiter::default(), DateTime::UNIX_EPOCH);
        for _ in 0..2 {
            assert_eq!(limiter.take("empty", RATE, now), Ok(()));
        }
        for key in 0..MAX_BUCKETS * 2 {
            assert_eq!(limiter.take(&key.to_string(), RATE, now), Ok(()));
            assert!(limiter.inner.lock().unwrap().buckets.len() <= MAX_BUCKETS);
        }
        assert_eq!(limiter.take("empty", RATE, now), Err(1), "the emptiest stay");
    }

    #[test]
    fn two_gateways_share_one_limit() {
        let (one, other, now) = (Limiter::default(), Limiter::default(), DateTime::UNIX_EPOCH);
        assert!(other.take("a", RATE, now).is_ok());
        assert!(one.take("a", RATE, now).is_ok());
        note_all(&one, &other, now);
        assert_eq!(one.take("a", RATE, now), Err(1));
        // Also for a principal that a gateway meets for the first time.
        let key = "login account:a b/c";
        assert!(other.take(key, RATE, now).and(other.take(key, RATE, now)).is_ok());
        note_all(&one, &other, now);
        assert_eq!(one.take(key, RATE, now), Err(1));
    }

    #[test]
    fn many_long_keys_make_neither_large_buckets_nor_large_reports() {
        let (one, other, now) = (Limiter::default(), Limiter::default(), DateTime::UNIX_EPOCH);
        let key = |number: usize| format!("{number} {}", "\u{1}".repeat(1_000_000));
        for number in 0..MAX_REPORTED + 1 {
            assert_eq!(other.take(&key(number), RATE, now), Ok(()));
        }
        assert!(other.inner.lock().unwrap().buckets.keys().all(|key| key.len() <= MAX_KEY));
        let reports = other.drain_taken();
        assert_eq!(reports.iter().map(HashMap::len).collect::<Vec<_>>(), [MAX_REPORTED, 1]);
        assert!(reports.iter().all(|report| serde_json::to_vec(report).unwrap().len() < 1_000_000));
        for report in &reports {
            one.note(report, now);
        }
        assert_eq!(one.take(&key(7), RATE, now), Ok(()));
        assert_eq!(one.take(&key(7), RATE, now), Err(1), "it is the same bucket at both");
    }

    /// Has `to` subtract what `from` has let through since the last time.
    fn note_all(to: &Limiter, from: &Limiter, now: DateTime<Utc>) {
        for report in from.drain_taken() {
            to.note(&report, now);
        }
    }
}
