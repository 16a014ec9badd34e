//! Rate limits: a token bucket per principal.
//!
//! Gateways tell each other what they have let through four times a second, and take it out of their own buckets, so
//! that a principal gets its limit once and not once per gateway.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use chrono::{DateTime, Utc};

/// Buckets at most; full ones are forgotten first, as they are like new ones.
const MAX_BUCKETS: usize = 100_000;

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
    /// Taken since the other gateways were told.
    taken: HashMap<String, u32>,
}

impl Bucket {
    fn refill(&mut self, now: DateTime<Utc>) {
        let seconds = (now - self.at).num_milliseconds().max(0) as f64 / 1000.0;
        let refilled = self.tokens + seconds * f64::from(self.rate.per_minute) / 60.0;
        self.tokens = refilled.min(f64::from(self.rate.burst));
        self.at = now;
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

    /// What was taken since the last call, to be told to the other gateways.
    pub(crate) fn drain_taken(&self) -> HashMap<String, u32> {
        std::mem::take(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner).taken)
    }

    /// Another gateway has let `taken` through. Principals that this one has not met count too, lest each gateway give
    /// them the whole limit.
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
        if self.buckets.len() >= MAX_BUCKETS && !self.buckets.contains_key(key) {
            self.buckets.retain(|_, bucket| {
                bucket.refill(now);
                bucket.tokens < f64::from(bucket.rate.burst)
            });
        }
        let new = Bucket { tokens: f64::from(rate.burst), at: now, rate };
        let bucket = self.buckets.entry(key.to_owned()).or_insert(new);
        bucket.refill(now);
        bucket
    }
}

/// What gateways call a bucket among themselves; the rate goes along for those who have to make it.
fn shared_name(key: &str, rate: Rate) -> String {
    format!("{}/{} {key}", rate.per_minute, rate.burst)
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
    fn two_gateways_share_one_limit() {
        let (one, other, now) = (Limiter::default(), Limiter::default(), DateTime::UNIX_EPOCH);
        assert!(other.take("a", RATE, now).is_ok());
        assert!(one.take("a", RATE, now).is_ok());
        one.note(&other.drain_taken(), now);
        assert_eq!(one.take("a", RATE, now), Err(1));
        // Also for a principal that a gateway meets for the first time.
        let key = "login account:a b/c";
        assert!(other.take(key, RATE, now).and(other.take(key, RATE, now)).is_ok());
        one.note(&other.drain_taken(), now);
        assert_eq!(one.take(key, RATE, now), Err(1));
    }
}
