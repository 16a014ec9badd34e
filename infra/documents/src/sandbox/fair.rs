//! Places shared fairly among principals.
//!
//! No principal may hold all places. When places are short, the next free one is given to a logged-in principal
//! before an anonymous one, then to the one that holds the fewest, then to the one that has waited longest. One place
//! beyond the ordinary ones is reserved for a logged-in principal that holds none, so that a document that takes
//! minutes delays only its own sender and those who hold as much.

use signalbox_boxed::boxed;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// Waiting requests of one principal; one more is refused.
const MAX_WAITING_EACH: usize = 64;
/// Waiting requests in all.
const MAX_WAITING: usize = 1024;

/// The principal whose share a document counts against.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Share {
    holder: String,
    is_anonymous: bool,
}

impl Share {
    /// A logged-in user's.
    pub fn user(id: impl std::fmt::Display) -> Self {
        Self { holder: format!("user:{id}"), is_anonymous: false }
    }

    /// That of a caller without a login, by its network (an IPv4 address or an IPv6 /64).
    pub fn anonymous(network: impl std::fmt::Display) -> Self {
        Self { holder: format!("network:{network}"), is_anonymous: true }
    }

    /// That of this machine's operator, such as the command line.
    pub fn operator() -> Self {
        Self { holder: "operator".to_owned(), is_anonymous: false }
    }

    /// True for a caller without a login.
    pub fn is_anonymous(&self) -> bool {
        self.is_anonymous
    }
}

/// How many places there are, and how many of them one holder may have.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Ordinary places.
    pub places: usize,
    /// Of these, at most so many for one anonymous principal.
    pub anonymous_each: usize,
    /// At most so many for all anonymous principals together.
    pub anonymous: usize,
}

/// The places. Clones share them.
#[derive(Debug, Clone)]
pub struct FairPlaces {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    sizes: Sizes,
    held: usize,
    held_by_anonymous: usize,
    holders: HashMap<Share, usize>,
    waiting: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    share: Share,
    grant: oneshot::Sender<Place>,
}

/// A place that is held until it is dropped.
#[derive(Debug)]
pub struct Place {
    places: FairPlaces,
    share: Share,
}

/// The waiting line is full, or this principal's part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl FairPlaces {
    /// All of them free.
    pub fn new(sizes: Sizes) -> Self {
        let inner =
            Inner { sizes, held: 0, held_by_anonymous: 0, holders: HashMap::new(), waiting: VecDeque::new() };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// A place, if `share` may have one at once.
    pub fn try_take(&self, share: &Share) -> Option<Place> {
        let mut inner = self.lock();
        (!inner.waiting.iter().any(|waiter| inner.may_take(&waiter.share)) && inner.may_take(share)).then(
            || {
                inner.take(share);
                self.place(share)
            },
        )
    }

    /// A place, as soon as it is `share`'s turn. The caller bounds the wait.
    ///
    /// # Errors
    /// [`Full`] when too many wait already.
    #[boxed]
    pub async fn take(&self, share: &Share) -> Result<Place, Full> {
        if let Some(place) = self.try_take(share) {
            return Ok(place);
        }
        let granted = {
            let mut inner = self.lock();
            inner.waiting.retain(|waiter| !waiter.grant.is_closed());
            let own = inner.waiting.iter().filter(|waiter| waiter.share == *share).count();
            if own >= MAX_WAITING_EACH || inner.waiting.len() >= MAX_WAITING {
                return Err(Full);
            }
            let (grant, granted) = oneshot::channel();
            inner.waiting.push_back(Waiter { share: share.clone(), grant });
            granted
        };
        // A place may have become free since the first attempt.
        self.grant_next();
        granted.await.map_err(|_| Full)
    }

    fn place(&self, share: &Share) -> Place {
        Place { places: self.clone(), share: share.clone() }
    }

    /// Hands free places to those whose turn it is.
    fn grant_next(&self) {
        loop {
            let mut inner = self.lock();
            inner.waiting.retain(|waiter| !waiter.grant.is_closed());
            let Some(waiter) = inner.next() else { return };
            inner.take(&waiter.share);
            drop(inner);
            // If the waiter was dropped meanwhile, the place is returned in the error and released by its drop.
            let place = self.place(&waiter.share);
            drop(waiter.grant.send(place));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn held_by(&self, share: &Share) -> usize {
        self.holders.get(share).copied().unwrap_or_default()
    }

    fn may_take(&self, share: &Share) -> bool {
        let Sizes { places, anonymous_each, anonymous } = self.sizes;
        if share.is_anonymous {
            return self.held < places
                && self.held_by_anonymous < anonymous
                && self.held_by(share) < anonymous_each;
        }
        self.held < places || (self.held == places && self.held_by(share) == 0)
    }

    fn take(&mut self, share: &Share) {
        self.held += 1;
        self.held_by_anonymous += usize::from(share.is_anonymous);
        *self.holders.entry(share.clone()).or_default() += 1;
    }

    fn release(&mut self, share: &Share) {
        self.held -= 1;
        self.held_by_anonymous -= usize::from(share.is_anonymous);
        if let Some(held) = self.holders.get_mut(share) {
            *held -= 1;
            if *held == 0 {
                self.holders.remove(share);
            }
        }
    }

    fn next(&mut self) -> Option<Waiter> {
        let eligible = self.waiting.iter().enumerate().filter(|(_, waiter)| self.may_take(&waiter.share));
        let (index, _) = eligible
            .min_by_key(|(index, waiter)| (waiter.share.is_anonymous, self.held_by(&waiter.share), *index))?;
        self.waiting.remove(index)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.lock().release(&self.share);
        self.places.grant_next();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    const SIZES: Sizes = Sizes { places: 2, anonymous_each: 1, anonymous: 2 };

    #[test]
    fn an_anonymous_principal_cannot_hold_all_places() {
        let places = FairPlaces::new(SIZES);
        let (noisy, other) = (Share::anonymous("192.0.2.1"), Share::anonymous("192.0.2.2"));
        let held = places.try_take(&noisy);
        assert!(held.is_some() && places.try_take(&noisy).is_none());
        assert!(places.try_take(&other).is_some());
    }

    #[test]
    fn a_user_without_a_place_gets_one_beyond_the_full_house() {
        let places = FairPlaces::new(SIZES);
        let strangers = ["192.0.2.1", "192.0.2.2"].map(|network| places.try_take(&Share::anonymous(network)));
        assert!(strangers.iter().all(Option::is_some));
        let first = places.try_take(&Share::user(1));
        assert!(first.is_some() && places.try_take(&Share::user(1)).is_none());
        assert!(places.try_take(&Share::user(2)).is_none());
    }

    #[tokio::test]
    async fn the_next_place_is_for_users_then_the_smallest_holder() {
        let places = FairPlaces::new(Sizes { places: 3, anonymous_each: 2, anonymous: 3 });
        let (greedy, modest, user) = (Share::anonymous("a"), Share::anonymous("b"), Share::user(1));
        let mut held = vec![places.try_take(&greedy), places.try_take(&greedy), places.try_take(&modest)];
        let mut own = vec![places.try_take(&user)];
        let mut again = Box::pin(places.take(&greedy));
        let mut stranger = Box::pin(places.take(&modest));
        let mut waiting_user = Box::pin(places.take(&user));
        assert!((&mut again).now_or_never().is_none());
        assert!((&mut stranger).now_or_never().is_none());
        assert!((&mut waiting_user).now_or_never().is_none());

        held.remove(0);
        own.remove(0);
        let granted = (&mut waiting_user).now_or_never();
        assert!(granted.is_some(), "users come first");
        assert!((&mut again).now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_dropped_waiter_passes_its_turn_on() {
        let places = FairPlaces::new(Sizes { places: 1, anonymous_each: 1, anonymous: 1 });
        let [holder, second, third] = ["a", "b", "c"].map(Share::anonymous);
        let held = places.try_take(&holder);
        let mut gone = Box::pin(places.take(&second));
        assert!((&mut gone).now_or_never().is_none());
        let mut next = Box::pin(places.take(&third));
        assert!((&mut next).now_or_never().is_none());
        drop(gone);
        drop(held);
        assert!(next.now_or_never().is_some_and(|granted| granted.is_ok()));
    }

    #[tokio::test]
    async fn the_waiting_line_of_one_principal_is_bounded() {
        let places = FairPlaces::new(SIZES);
        let share = Share::anonymous("a");
        let _held = places.try_take(&share);
        let mut waiting: Vec<_> = (0..MAX_WAITING_EACH).map(|_| Box::pin(places.take(&share))).collect();
        assert!(waiting.iter_mut().all(|one| one.now_or_never().is_none()));
        assert_eq!(places.take(&share).now_or_never().map(|taken| taken.err()), Some(Some(Full)));
    }
}
