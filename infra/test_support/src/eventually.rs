use std::{future::Future, panic::Location, time::Duration};

use tokio::time::{Instant, sleep};

use crate::setup::time_limit;

const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// `count` seconds, for bounds.
pub fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Waits until `condition` holds; fails the test, naming its line, when that takes longer than `bound`.
#[track_caller]
pub fn eventually<C: AsyncFnMut() -> bool>(bound: Duration, mut condition: C) -> impl Future<Output = ()> {
    eventually_some(bound, async move || condition().await.then_some(()))
}

/// Waits until `attempt` gives something; fails the test, naming its line, when that takes longer than `bound`.
#[track_caller]
pub fn eventually_some<T, C>(bound: Duration, mut attempt: C) -> impl Future<Output = T>
where
    C: AsyncFnMut() -> Option<T>,
{
    let place = Location::caller();
    async move {
        let bound = time_limit(bound);
        let deadline = Instant::now() + bound;
        loop {
            if let Some(found) = attempt().await {
                return found;
            }
            assert!(Instant::now() < deadline, "{place}: timed out after {bound:?}");
            sleep(POLL_INTERVAL).await;
        }
    }
}
