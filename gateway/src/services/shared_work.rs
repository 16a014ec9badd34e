//! Identical requests that come while one of them is worked on share the work.
//!
//! The work runs apart from the requests: the one that began it may go away, and the others still get the result. When the last one
//! has gone, the work ends. This is for economy alone: without it each request would do the same work and find the same.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signalbox_documents::{Failure, Share};
use signalbox_texts::CacheKey;
use tokio::sync::watch;

/// Requests that wait for the same work.
const SHARERS: usize = 64;

/// The principal and the inputs: the work counts against the share of one principal, so it is not shared with others.
pub(crate) type WorkKey = (Share, CacheKey);

type Outcome<T> = Result<Arc<T>, Failure>;

/// Published when the work has ended.
type Published<T> = Arc<watch::Sender<Option<Outcome<T>>>>;

/// The work that is under way. Clones share it.
pub(crate) struct SharedWork<T> {
    running: Arc<Mutex<HashMap<WorkKey, Published<T>>>>,
}

impl<T> Default for SharedWork<T> {
    fn default() -> Self {
        Self { running: Arc::default() }
    }
}

impl<T> Clone for SharedWork<T> {
    fn clone(&self) -> Self {
        Self { running: self.running.clone() }
    }
}

impl<T: Send + Sync + 'static> SharedWork<T> {
    /// The outcome of the work with `key` that is under way, or else of `work`.
    ///
    /// # Errors
    /// [`Failure`].
    pub(crate) async fn run<F>(&self, key: WorkKey, work: impl FnOnce() -> F) -> Outcome<T>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut outcome = self.join(key, work)?;
        let published = outcome.wait_for(Option::is_some).await;
        // Without an outcome, the work has panicked.
        published.ok().and_then(|outcome| outcome.clone()).unwrap_or(Err(Failure::Crash))
    }

    fn join<F>(
        &self,
        key: WorkKey,
        work: impl FnOnce() -> F,
    ) -> Result<watch::Receiver<Option<Outcome<T>>>, Failure>
    where
        F: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let mut running = self.lock();
        if let Some(published) = running.get(&key) {
            if published.receiver_count() >= SHARERS {
                return Err(Failure::unavailable(
                    "too many identical requests wait for the same document: try again in a moment",
                ));
            }
            return Ok(published.subscribe());
        }
        let (published, outcome) = watch::channel(None);
        let published = Arc::new(published);
        running.insert(key.clone(), published.clone());
        drop(running);
        let entry = Entry { shared: self.clone(), key, published };
        tokio::spawn(entry.carry_out(work()));
        Ok(outcome)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<WorkKey, Published<T>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work that is listed until it ends, in whatever way.
struct Entry<T: Send + Sync + 'static> {
    shared: SharedWork<T>,
    key: WorkKey,
    published: Published<T>,
}

impl<T: Send + Sync + 'static> Entry<T> {
    async fn carry_out(self, work: impl Future<Output = Result<T, Failure>>) {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                biased;
                outcome = &mut work => {
                    // Later requests find the remembered text, or work anew.
                    self.unlist(|_| true);
                    self.published.send_replace(Some(outcome.map(Arc::new)));
                    return;
                }
                () = self.published.closed() => {
                    // Another request may have joined since.
                    if self.unlist(|published| published.receiver_count() == 0) {
                        return;
                    }
                }
            }
        }
    }

    /// Takes it off the list, if `when` holds.
    fn unlist(&self, when: impl FnOnce(&Published<T>) -> bool) -> bool {
        let mut running = self.shared.lock();
        let is_listed = running.get(&self.key).is_some_and(|known| Arc::ptr_eq(known, &self.published));
        if is_listed && when(&self.published) {
            running.remove(&self.key);
            return true;
        }
        !is_listed
    }
}

impl<T: Send + Sync + 'static> Drop for Entry<T> {
    fn drop(&mut self) {
        self.unlist(|_| true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::{
        future::{join_all, pending},
        poll,
    };
    use signalbox_documents::Options;
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    fn key(user: &str, document: &str) -> WorkKey {
        (Share::user(user), CacheKey::new(None, document, "a.pdf", &Options::default()).unwrap())
    }

    /// Work that ends when it is let go; how often it began.
    #[derive(Clone)]
    struct Slow {
        begun: Arc<AtomicUsize>,
        released: Arc<Semaphore>,
    }

    impl Slow {
        fn new() -> Self {
            Self { begun: Arc::default(), released: Arc::new(Semaphore::new(0)) }
        }

        async fn work(self) -> Result<usize, Failure> {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            let _ended = self.released.acquire().await;
            Ok(number)
        }
    }

    #[tokio::test]
    async fn identical_requests_share_one_work_and_others_do_not() {
        let (shared, slow) = (SharedWork::default(), Slow::new());
        let ask = |user: &str, document: &str| {
            let (shared, slow, key) = (shared.clone(), slow.clone(), key(user, document));
            tokio::spawn(async move { shared.run(key, || slow.work()).await })
        };
        let same: Vec<_> = (0..16).map(|_| ask("anna", "one")).collect();
        let others = [ask("anna", "two"), ask("berta", "one")];
        let is_complete = || {
            let running = shared.lock();
            let same_wait =
                running.get(&key("anna", "one")).map_or(0, |published| published.receiver_count());
            running.len() == 3 && same_wait == same.len()
        };
        while !is_complete() {
            tokio::task::yield_now().await;
        }
        slow.released.add_permits(3);
        let first = join_all(same).await.into_iter().map(|outcome| outcome.unwrap().unwrap());
        let first: Vec<_> = first.collect();
        assert!(first.iter().all(|outcome| Arc::ptr_eq(outcome, &first[0])));
        join_all(others).await.into_iter().for_each(|outcome| drop(outcome.unwrap().unwrap()));
        assert_eq!(slow.begun.load(Ordering::Relaxed), 3);
        assert!(shared.lock().is_empty(), "later requests are worked on anew");
    }

    #[tokio::test]
    async fn the_first_request_may_go_away_and_the_others_get_the_result() {
        let (shared, slow) = (SharedWork::default(), Slow::new());
        let mut first = Box::pin(shared.run(key("anna", "one"), || slow.clone().work()));
        let mut second = Box::pin(shared.run(key("anna", "one"), || slow.clone().work()));
        assert!(poll!(&mut first).is_pending() && poll!(&mut second).is_pending());
        drop(first);
        slow.released.add_permits(1);
        assert_eq!(*second.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn work_that_no_request_waits_for_ends() {
        let shared = SharedWork::<usize>::default();
        let (held, ended) = oneshot::channel::<()>();
        let mut first = Box::pin(shared.run(key("anna", "one"), || async move {
            let _held = held;
            pending().await
        }));
        assert!(poll!(&mut first).is_pending());
        drop(first);
        // Its part of the channel is dropped with it.
        assert!(ended.await.is_err());
        while !shared.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    async fn panics() -> Result<usize, Failure> {
        panic!("as a fault of ours would")
    }

    #[tokio::test]
    async fn failures_are_shared_and_a_panic_is_one() {
        let shared = SharedWork::<usize>::default();
        let failed = shared.run(key("anna", "one"), || async { Err(Failure::Encrypted) }).await;
        assert_eq!(failed.unwrap_err(), Failure::Encrypted);
        let panicked = shared.run(key("anna", "one"), panics).await;
        assert_eq!(panicked.unwrap_err(), Failure::Crash);
        assert_eq!(*shared.run(key("anna", "one"), || async { Ok(7) }).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn requests_that_share_are_bounded() {
        let (shared, slow) = (SharedWork::default(), Slow::new());
        let mut waiting: Vec<_> =
            (0..SHARERS).map(|_| Box::pin(shared.run(key("anna", "one"), || slow.clone().work()))).collect();
        for request in &mut waiting {
            assert!(poll!(request).is_pending());
        }
        let refused = shared.run(key("anna", "one"), || slow.clone().work()).await;
        assert!(matches!(refused, Err(Failure::Unavailable { .. })));
        slow.released.add_permits(1);
        join_all(waiting).await.into_iter().for_each(|outcome| assert_eq!(*outcome.unwrap(), 0));
    }
}
