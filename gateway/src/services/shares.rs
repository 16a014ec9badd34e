//! Limits of what one principal does at the same time.
//!
//! A rate limit bounds how often a principal asks; this bounds how much of the database it holds, so that a few slow queries of
//! one do not keep all others waiting. Within a budget of time, a principal may do several things at once; beyond it, one after the
//! other, because a database with few cores serves eight queries no faster than one, and everybody else's slower. The limits are
//! those of one gateway.

use std::{
    collections::HashMap,
    ops::Deref,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{AcquireError, OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};

/// How long one more than its share waits.
const WAIT: Duration = Duration::from_secs(2);
/// Principals at most; those that hold nothing are forgotten first.
const MAX_PRINCIPALS: usize = 10_000;

/// Seconds of a budget that may be used at once.
const BURST_SECONDS: u32 = 4;

/// Places that principals share.
#[derive(Debug)]
pub(crate) struct Shares {
    each: u32,
    wait: Duration,
    /// Seconds of held places in a second, of one principal on average; 0 for any number.
    budget: u32,
    all: Arc<Semaphore>,
    held: Mutex<HashMap<String, Arc<Own>>>,
}

/// Places of exports. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Exports(Arc<Shares>);

impl Exports {
    pub(crate) fn new(shares: Shares) -> Self {
        Self(Arc::new(shares))
    }
}

impl Deref for Exports {
    type Target = Shares;

    fn deref(&self) -> &Shares {
        &self.0
    }
}

/// The places of one principal.
#[derive(Debug)]
struct Own {
    places: Arc<Semaphore>,
    spent: Mutex<Spent>,
}

/// For how long places were held, less the budget of the time since.
#[derive(Debug, Clone, Copy)]
struct Spent {
    time: Duration,
    at: Instant,
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    own: Arc<Own>,
    budget: u32,
    since: Instant,
    _places: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

/// Why there is no place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The principal holds as many as one may.
    Own,
    /// All together do.
    All,
}

impl Shares {
    /// Places for `all` together and `each` principal.
    pub(crate) fn new(each: u32, all: usize) -> Self {
        let (each, all) = (each.max(1), Arc::new(Semaphore::new(all)));
        Self { each, wait: WAIT, budget: 0, all, held: Mutex::default() }
    }

    /// The same; a principal that holds places for more than `seconds` in a second on average gets one after the other.
    pub(crate) fn with_budget(self, seconds: u32) -> Self {
        Self { budget: seconds, ..self }
    }

    /// A place for `principal`, for which it may wait for a moment.
    pub(crate) async fn take(&self, principal: &str) -> Result<Share, Full> {
        let own = self.of(principal);
        let places = timeout(self.wait, own.acquire(self.each, self.budget)).await;
        let places = places.ok().and_then(Result::ok).ok_or(Full::Own)?;
        let all = timeout(self.wait, self.all.clone().acquire_owned()).await;
        let all = all.ok().and_then(Result::ok).ok_or(Full::All)?;
        Ok(Share { own, budget: self.budget, since: Instant::now(), _places: places, _all: all })
    }

    fn of(&self, principal: &str) -> Arc<Own> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.len() >= MAX_PRINCIPALS {
            held.retain(|_, own| Arc::strong_count(own) > 1 || own.is_overspent(self.budget));
        }
        if held.len() >= MAX_PRINCIPALS {
            held.retain(|_, own| Arc::strong_count(own) > 1);
        }
        held.entry(principal.to_owned()).or_insert_with(|| Arc::new(Own::new(self.each))).clone()
    }
}

impl Own {
    fn new(places: u32) -> Self {
        let spent = Spent { time: Duration::ZERO, at: Instant::now() };
        Self { places: Arc::new(Semaphore::new(places as usize)), spent: Mutex::new(spent) }
    }

    /// A place, or all of them for one that has spent its budget, perhaps by what ran while this waited.
    async fn acquire(&self, all: u32, budget: u32) -> Result<OwnedSemaphorePermit, AcquireError> {
        if !self.is_overspent(budget) {
            let place = self.places.clone().acquire_owned().await?;
            if !self.is_overspent(budget) {
                return Ok(place);
            }
        }
        self.places.clone().acquire_many_owned(all).await
    }

    fn is_overspent(&self, budget: u32) -> bool {
        budget > 0
            && self.spend(Duration::ZERO, budget) > Duration::from_secs((BURST_SECONDS * budget).into())
    }

    /// Adds `time` to what was spent; gives back what that is now.
    fn spend(&self, time: Duration, budget: u32) -> Duration {
        let (mut spent, now) = (self.spent.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let earned = (now - spent.at) * budget;
        *spent = Spent { time: spent.time.saturating_sub(earned) + time, at: now };
        spent.time
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.own.spend(self.since.elapsed(), self.budget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_principal_waits_for_its_own_places_only() {
        let shares = Shares { wait: Duration::ZERO, ..Shares::new(2, 3) };
        let (one, two) = (shares.take("a").await.unwrap(), shares.take("a").await.unwrap());
        assert_eq!(shares.take("a").await.unwrap_err(), Full::Own);
        let other = shares.take("b").await.unwrap();
        assert_eq!(shares.take("c").await.unwrap_err(), Full::All);
        drop(one);
        shares.take("c").await.unwrap();
        drop((two, other));
        shares.take("a").await.unwrap();
    }

    #[tokio::test]
    async fn a_principal_beyond_its_budget_gets_one_place_after_the_other() {
        let shares = Shares { wait: Duration::ZERO, ..Shares::new(4, 10).with_budget(1) };
        drop([shares.take("a").await.unwrap(), shares.take("a").await.unwrap()]);
        shares.of("a").spend(Duration::from_secs(8), 1);
        let alone = shares.take("a").await.unwrap();
        assert_eq!(shares.take("a").await.unwrap_err(), Full::Own);
        shares.take("b").await.unwrap();
        drop(alone);
        shares.of("a").spent.lock().unwrap().at -= Duration::from_secs(5);
        let _both = [shares.take("a").await.unwrap(), shares.take("a").await.unwrap()];
    }

    #[tokio::test]
    async fn a_freed_place_is_for_the_next_in_line() {
        let shares = Shares { wait: Duration::from_secs(60), ..Shares::new(1, 10) };
        let held = shares.take("a").await.unwrap();
        let free = async { drop(held) };
        let (next, ()) = tokio::join!(shares.take("a"), free);
        assert!(next.is_ok());
    }
}
