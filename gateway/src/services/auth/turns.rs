//! The order in which passwords are hashed.
//!
//! A hash takes tens of milliseconds of a core on purpose, so that guessers would keep everyone else waiting. Networks with the
//! fewest failures of late therefore come first, and those with several never hold all places.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use crate::http::network::Network;

/// Limit of waiting logins; beyond it, the one with the most failures is rejected.
const MAX_WAITING: usize = 256;
/// Of one network.
const MAX_WAITING_EACH: usize = 64;
/// How long failures count, and of how many networks.
const MEMORY: Duration = Duration::from_secs(60);
const MAX_NETWORKS: usize = 10_000;
/// So often a person may mistype.
const TYPING_ERRORS: u32 = 3;

/// Places for hashes. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Turns(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    places: usize,
    held: usize,
    /// Those held by networks with more failures than typing errors explain.
    held_by_guessers: usize,
    failures: HashMap<Network, Failures>,
    waiting: BTreeMap<Rank, Waiter>,
    count: u64,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    last: Instant,
}

/// Failures of the network, then order of arrival.
type Rank = (u32, u64);

#[derive(Debug)]
struct Waiter {
    network: Option<Network>,
    grant: oneshot::Sender<Turn>,
}

/// A place, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    is_guesser: bool,
}

/// Too many wait already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Turns {
    /// At most `places` at the same time.
    pub(super) fn new(places: usize) -> Self {
        let inner = Inner {
            places: places.max(1),
            held: 0,
            held_by_guessers: 0,
            failures: HashMap::new(),
            waiting: BTreeMap::new(),
            count: 0,
        };
        Self(Arc::new(Mutex::new(inner)))
    }

    /// A place for `network`, or for a user who is logged in.
    pub(super) async fn take(&self, network: Option<Network>) -> Result<Turn, Full> {
        let granted = self.lock().enter(network)?;
        self.grant_next();
        granted.await.map_err(|_| Full)
    }

    /// A password from `network` was wrong.
    pub(super) fn note_failure(&self, network: Network) {
        let (mut inner, now) = (self.lock(), Instant::now());
        if inner.failures.len() >= MAX_NETWORKS {
            inner.failures.retain(|_, failures| now - failures.last < MEMORY);
        }
        if inner.failures.len() < MAX_NETWORKS || inner.failures.contains_key(&network) {
            let count = inner.failures_of(Some(network)).saturating_add(1);
            inner.failures.insert(network, Failures { count, last: now });
        }
    }

    /// Hands free places to those whose turn it is.
    fn grant_next(&self) {
        loop {
            let mut inner = self.lock();
            inner.waiting.retain(|_, waiter| !waiter.grant.is_closed());
            let Some((waiter, is_guesser)) = inner.next() else { return };
            drop(inner);
            // If the waiter was dropped meanwhile, the place is returned in the error and released by its drop.
            drop(waiter.grant.send(Turn { turns: self.clone(), is_guesser }));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn failures_of(&self, network: Option<Network>) -> u32 {
        let failures = network.and_then(|network| self.failures.get(&network));
        failures.filter(|failures| failures.last.elapsed() < MEMORY).map_or(0, |failures| failures.count)
    }

    fn enter(&mut self, network: Option<Network>) -> Result<oneshot::Receiver<Turn>, Full> {
        let same = self.waiting.values().filter(|waiter| network.is_some() && waiter.network == network);
        if same.count() >= MAX_WAITING_EACH {
            return Err(Full);
        }
        self.count += 1;
        let (grant, granted) = oneshot::channel();
        self.waiting.insert((self.failures_of(network), self.count), Waiter { network, grant });
        if self.waiting.len() > MAX_WAITING {
            // Its receiver fails, perhaps this one.
            self.waiting.pop_last();
        }
        Ok(granted)
    }

    /// Takes a place for the first who may have one.
    fn next(&mut self) -> Option<(Waiter, bool)> {
        let (&rank, _) = self.waiting.first_key_value()?;
        let is_guesser = rank.0 > TYPING_ERRORS;
        let is_free = self.held < self.places;
        // One place is kept for the others, if there are several.
        let may_guess = self.held_by_guessers < (self.places - 1).max(1);
        if !is_free || (is_guesser && !may_guess) {
            return None;
        }
        self.held += 1;
        self.held_by_guessers += usize::from(is_guesser);
        Some((self.waiting.remove(&rank)?, is_guesser))
    }
}

impl Turn {
    /// True for a network with more failures of late than typing errors explain.
    pub(super) fn is_guesser(&self) -> bool {
        self.is_guesser
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut inner = self.turns.lock();
        inner.held -= 1;
        inner.held_by_guessers -= usize::from(self.is_guesser);
        drop(inner);
        self.turns.grant_next();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use futures::FutureExt;

    use super::*;

    fn network(number: u8) -> Option<Network> {
        Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, number)).into())
    }

    fn guess(turns: &Turns, number: u8, times: u32) {
        (0..times).for_each(|_| turns.note_failure(network(number).unwrap()));
    }

    #[tokio::test]
    async fn guessers_leave_one_place_to_the_others() {
        let turns = Turns::new(2);
        guess(&turns, 1, 10);
        let held = turns.take(network(1)).await.unwrap();
        assert!(turns.take(network(1)).now_or_never().is_none());
        let other = turns.take(network(2)).now_or_never().unwrap().unwrap();
        drop(held);
        assert!(turns.take(network(1)).now_or_never().is_some());
        drop(other);
    }

    #[tokio::test]
    async fn the_fewest_failures_come_first() {
        let turns = Turns::new(1);
        guess(&turns, 1, 10);
        guess(&turns, 2, 1);
        let held = turns.take(network(3)).await.unwrap();
        let mut guesser = Box::pin(turns.take(network(1)));
        let mut mistyped = Box::pin(turns.take(network(2)));
        let mut quiet = Box::pin(turns.take(network(3)));
        assert!((&mut guesser).now_or_never().is_none());
        assert!((&mut mistyped).now_or_never().is_none());
        assert!((&mut quiet).now_or_never().is_none());
        drop(held);
        assert!(mistyped.as_mut().now_or_never().is_none());
        drop(quiet.now_or_never().unwrap());
        assert!(guesser.as_mut().now_or_never().is_none());
        drop(mistyped.now_or_never().unwrap());
        assert!(guesser.now_or_never().is_some_and(|granted| granted.is_ok()));
    }

    #[tokio::test]
    async fn a_full_line_turns_guessers_away() {
        let turns = Turns::new(1);
        let _held = turns.take(None).await.unwrap();
        guess(&turns, 1, 10);
        let mut guessers: Vec<_> = (0..MAX_WAITING_EACH).map(|_| Box::pin(turns.take(network(1)))).collect();
        assert!(guessers.iter_mut().all(|guesser| guesser.now_or_never().is_none()));
        assert_eq!(turns.take(network(1)).now_or_never().map(|taken| taken.err()), Some(Some(Full)));
        let mut others: Vec<_> = (0..MAX_WAITING).map(|_| Box::pin(turns.take(None))).collect();
        assert!(others.iter_mut().all(|other| other.now_or_never().is_none()));
        assert!(guessers.iter_mut().all(|guesser| guesser.now_or_never().is_some()));
    }
}
