//! A few children that wait for a document each. The next one is started while a document is read, so that callers do not
//! wait for a start.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{io::AsyncRead, time::timeout};

use super::{
    FairPlaces, Sizes,
    job::{Job, Output, PoolOptions, Recognition},
    worker::{Admission, Ended, Worker},
};
use crate::{failure::Failure, reader::Abilities};

/// Why there is no pool.
#[derive(Debug, thiserror::Error)]
pub enum PoolError {
    /// No child can be started.
    #[error("the process that parses documents cannot be started: {0}")]
    Start(#[from] io::Error),
}

/// Children that parse.
#[derive(Clone)]
pub(crate) struct Pool {
    inner: Arc<Inner>,
}

struct Inner {
    options: PoolOptions,
    idle: Mutex<VecDeque<Worker>>,
    /// Children that are being started.
    starting: AtomicUsize,
    /// For documents whose text is only to be taken out: milliseconds, mostly. They share the processors.
    reading: FairPlaces,
    recognition: Recognition,
    abilities: Abilities,
}

impl Pool {
    /// Starts the children and waits for the first.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let first = Worker::start(&options).await?;
        let (children, more) = (options.children.max(1), options.children.saturating_sub(1));
        let reading = FairPlaces::new(Sizes {
            places: 2 * children,
            anonymous_each: children,
            anonymous: 2 * children,
        });
        let anonymous_each = children.div_ceil(2);
        let recognition = Recognition {
            places: FairPlaces::new(Sizes { places: children, anonymous_each, anonymous: children }),
            waiting: FairPlaces::new(Sizes {
                places: 4 * children,
                anonymous_each: 2 * children,
                anonymous: 3 * children,
            }),
        };
        let abilities = first.abilities.clone();
        let idle = Mutex::new(VecDeque::from([first]));
        let starting = AtomicUsize::new(0);
        let inner = Inner { options, idle, starting, reading, recognition, abilities };
        let pool = Self { inner: Arc::new(inner) };
        (0..more).for_each(|_| pool.refill());
        Ok(pool)
    }

    /// How many documents are read at the same time.
    pub fn capacity(&self) -> usize {
        self.inner.options.children.max(1)
    }

    pub(crate) fn abilities(&self) -> &Abilities {
        &self.inner.abilities
    }

    /// Has a document read or drawn by a child, when one is free.
    ///
    /// # Errors
    /// [`Failure`], of this document alone.
    pub(crate) async fn extract<R: AsyncRead + Unpin>(&self, job: Job<'_, R>) -> Result<Output, Failure> {
        let busy = || Failure::unavailable("too many documents are being read: try again in a moment");
        let queue_timeout = self.inner.options.queue_timeout;
        let place = timeout(queue_timeout, self.inner.reading.take(job.share)).await;
        let place = place.map_err(|_| busy())?.map_err(|_| busy())?;
        let recognition = &self.inner.recognition;
        let admission =
            Admission { share: job.share, place: Some(place), recognition, timeout: queue_timeout };
        let idle = living(&mut self.inner.idle());
        // The child ends with its document.
        self.refill();
        let mut worker = match idle {
            Some(worker) => worker,
            None => Worker::start(&self.inner.options).await.map_err(|error| {
                tracing::error!(%error, "no process can be started to parse a document");
                Failure::unavailable("documents cannot be read now: try again in a moment")
            })?,
        };
        let wall = Duration::from_secs(self.inner.options.limits.wall_seconds);
        match worker.read(job, admission, wall).await {
            Ended::Said(ended) => {
                // Reaped beside the answer.
                tokio::spawn(async move { worker.kill().await });
                ended
            }
            Ended::Crashed(failure) => {
                tracing::warn!(%failure, "a document ended the process that parsed it");
                Err(failure)
            }
        }
    }

    /// Starts another child in the background, unless enough are idle or starting.
    fn refill(&self) {
        let inner = self.inner.clone();
        let waiting = inner.idle().len() + inner.starting.fetch_add(1, Ordering::Relaxed);
        if waiting >= inner.options.children.max(1) {
            inner.starting.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        tokio::spawn(async move {
            let started = Worker::start(&inner.options).await;
            inner.starting.fetch_sub(1, Ordering::Relaxed);
            match started {
                Ok(worker) => {
                    let mut idle = inner.idle();
                    if idle.len() < inner.options.children {
                        idle.push_back(worker);
                    }
                }
                Err(error) => tracing::error!(%error, "no process can be started to parse documents"),
            }
        });
    }
}

impl Inner {
    fn idle(&self) -> std::sync::MutexGuard<'_, VecDeque<Worker>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first of `idle` that still runs: a document is not to blame for one that was killed before, as when memory was short.
fn living(idle: &mut VecDeque<Worker>) -> Option<Worker> {
    loop {
        let mut worker = idle.pop_front()?;
        if worker.is_running() {
            return Some(worker);
        }
        tracing::warn!("an idle process that parses documents was ended by another; the next one is used");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_idle_child_that_was_killed_gets_no_document() {
        let (mut killed, living_one) = (Worker::idle_for_test(), Worker::idle_for_test());
        killed.kill().await;
        let mut idle = VecDeque::from([killed, living_one]);
        let mut found = living(&mut idle).unwrap();
        assert!(found.is_running() && idle.is_empty());
        found.kill().await;
        idle.push_back(found);
        assert!(living(&mut idle).is_none());
    }
}
