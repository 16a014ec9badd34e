//! A few children that wait for documents, so that starting one is nobody's delay.

use std::{
    collections::VecDeque,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{io::AsyncRead, sync::Semaphore, time::timeout};

use super::worker::{Ended, Worker};
use crate::{
    engines::Places,
    extraction::Parsed,
    failure::Failure,
    options::Options,
    reader::{Abilities, Limits},
    services::GoogleVision,
};

/// After how many documents a child is replaced, lest small leaks add up.
const DOCUMENTS: usize = 500;

/// What a pool is made of.
#[derive(Debug, Clone)]
pub(crate) struct PoolOptions {
    /// The program that parses.
    pub(crate) program: PathBuf,
    /// What makes it do so.
    pub(crate) arguments: Vec<String>,
    /// Where its libraries are.
    pub(crate) places: Places,
    /// What one document may take.
    pub(crate) limits: Limits,
    /// Children, and so documents, at the same time.
    pub(crate) children: usize,
    /// How long a document may wait for a child.
    pub(crate) patience: Duration,
}

/// Told of pages done, of all.
pub type Progress<'a> = &'a mut (dyn FnMut(usize, usize) + Send);

/// A document to be read.
pub(crate) struct Job<'a, R> {
    /// Its bytes.
    pub(crate) bytes: R,
    /// How many.
    pub(crate) length: u64,
    /// What it is called.
    pub(crate) name: &'a str,
    /// What it is, if that is not to be found out from the bytes.
    pub(crate) mime_type: Option<&'static str>,
    /// What is asked for.
    pub(crate) options: &'a Options,
    /// The service that recognises, if the options name one.
    pub(crate) recognise: Option<&'a GoogleVision>,
    /// Told of pages done.
    pub(crate) progress: Progress<'a>,
}

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
    places: Semaphore,
    abilities: Abilities,
}

impl Pool {
    /// Starts the children and waits for the first.
    ///
    /// # Errors
    /// [`PoolError`].
    pub(crate) async fn start(options: PoolOptions) -> Result<Self, PoolError> {
        let first = Worker::start(&options).await?;
        let (places, more) = (Semaphore::new(options.children.max(1)), options.children.saturating_sub(1));
        let abilities = first.abilities.clone();
        let inner = Inner { options, idle: Mutex::new(VecDeque::from([first])), places, abilities };
        let pool = Self { inner: Arc::new(inner) };
        (0..more).for_each(|_| pool.refill());
        Ok(pool)
    }

    /// How many documents are read at the same time.
    pub fn capacity(&self) -> usize {
        self.inner.options.children.max(1)
    }

    /// What the children can do.
    pub(crate) fn abilities(&self) -> &Abilities {
        &self.inner.abilities
    }

    /// Has a document read by a child, when one is free.
    ///
    /// # Errors
    /// [`Failure`], of this document alone.
    pub(crate) async fn extract<R: AsyncRead + Unpin>(&self, job: Job<'_, R>) -> Result<Parsed, Failure> {
        let busy = || Failure::unavailable("too many documents are being read: try again in a moment");
        let place = timeout(self.inner.options.patience, self.inner.places.acquire()).await;
        let _place = place.map_err(|_| busy())?.map_err(|_| busy())?;
        let idle = self.inner.idle().pop_front();
        let mut worker = match idle {
            Some(worker) => worker,
            None => Worker::start(&self.inner.options).await.map_err(|error| {
                tracing::error!(%error, "no process can be started to parse a document");
                Failure::unavailable("documents cannot be read now: try again in a moment")
            })?,
        };
        let wall = Duration::from_secs(self.inner.options.limits.wall_seconds);
        match worker.read(job, wall).await {
            Ended::Said(ended) if worker.done < DOCUMENTS => {
                self.inner.idle().push_back(worker);
                ended.map(|parsed| *parsed)
            }
            Ended::Said(ended) => {
                self.refill();
                ended.map(|parsed| *parsed)
            }
            Ended::Died(failure) => {
                tracing::warn!(%failure, "a document ended the process that parsed it");
                self.refill();
                Err(failure)
            }
        }
    }

    /// Starts another child beside what goes on.
    fn refill(&self) {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            match Worker::start(&inner.options).await {
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
