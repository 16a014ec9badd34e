//! Items that a worker fails on: each is retried by itself at a bounded rate, and delays no other item.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use signalbox_database::{clear_fault, report_fault};
use uuid::Uuid;

use crate::{Context, WorkerError};

/// Backoff after the first failure of an item; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);
const MAX_BACKOFF: Duration = Duration::from_secs(300);
/// Failing items that are remembered; a worker that has more stops with the error.
const MAX_ITEMS: usize = 10_000;
/// Time after its due retry at which an item that was not retried is dropped: its work is not due any more.
const STALE: Duration = Duration::from_secs(600);
/// How often failures are reported while they last.
const REPORT: Duration = Duration::from_secs(30);

/// The items that a worker fails on.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    items: HashMap<Uuid, Failing>,
    /// When they were reported; `None` until the fault of an earlier process was cleared or reported again.
    reported: Option<(Instant, usize)>,
}

#[derive(Debug)]
struct Failing {
    retry_at: Instant,
    backoff: Duration,
    error: String,
}

impl Known {
    fn forget_stale(&mut self, now: Instant) {
        self.items.retain(|_, item| now.saturating_duration_since(item.retry_at) < STALE);
    }
}

impl Failures {
    /// The items that are not to be tried yet.
    pub(crate) fn paused(&self) -> Vec<Uuid> {
        let now = Instant::now();
        let known = self.known();
        known.items.iter().filter(|(_, item)| item.retry_at > now).map(|(id, _)| *id).collect()
    }

    /// Whether item `id` has failed before.
    #[cfg(test)]
    fn has_failed(&self, id: Uuid) -> bool {
        self.known().items.contains_key(&id)
    }

    /// Notes the result of item `id`. Returns an error that does not concern the item alone.
    pub(crate) fn settle(&self, id: Uuid, result: Result<(), WorkerError>) -> Result<(), WorkerError> {
        let mut known = self.known();
        let Err(error) = result else {
            known.items.remove(&id);
            return Ok(());
        };
        let is_full = known.items.len() >= MAX_ITEMS && !known.items.contains_key(&id);
        if !error.is_of_item() || is_full {
            return Err(error);
        }
        let before = known.items.get(&id).map(|item| item.backoff * 2);
        let backoff = before.unwrap_or(FIRST_BACKOFF).min(MAX_BACKOFF);
        let retry_at = Instant::now() + backoff;
        known.items.insert(id, Failing { retry_at, backoff, error: error.to_string() });
        Ok(())
    }

    /// Reports the failing items of worker `name`, or clears the report.
    pub(crate) async fn report(&self, context: &Context, name: &str) -> Result<(), WorkerError> {
        let (count, reason) = {
            let mut known = self.known();
            known.forget_stale(Instant::now());
            let count = known.items.len();
            let is_fresh = known
                .reported
                .is_some_and(|(at, before)| before == count && (count == 0 || at.elapsed() < REPORT));
            if is_fresh {
                return Ok(());
            }
            known.reported = Some((Instant::now(), count));
            let oldest = known.items.iter().max_by_key(|(_, item)| item.backoff);
            (
                count,
                oldest.map(|(id, item)| {
                    format!("{count} items fail and are retried, such as {id}: {}", item.error)
                }),
            )
        };
        let part = format!("worker.{name}.items");
        match reason {
            None => drop(clear_fault(&context.pool, &part).await?),
            Some(reason) => {
                tracing::warn!(worker = name, count, reason, "items of a worker fail");
                report_fault(&context.pool, &part, &reason).await?;
            }
        }
        Ok(())
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_is_not_tried_again_is_forgotten() {
        let (failures, id) = (Failures::default(), Uuid::from_u128(7));
        failures.settle(id, Err(WorkerError::Panic("no".to_owned()))).unwrap();
        let failed = Instant::now();
        failures.known().forget_stale(failed + FIRST_BACKOFF + STALE / 2);
        assert!(failures.has_failed(id));
        failures.known().forget_stale(failed + FIRST_BACKOFF + STALE * 2);
        assert!(!failures.has_failed(id));
    }
}
