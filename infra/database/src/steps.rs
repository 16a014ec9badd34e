//! Steps of background work that do not return: a file system or a server that never answers ends in no error.
//!
//! A step is registered while it runs, with a limit that it does not reach while all works. [`Steps::watch`] reports those
//! that have reached it, and clears the fault when they return. It has a thread of its own: a step may block the thread that
//! runs it, and the task that was to run there next waits with it. A process that is gone reports no longer, so its faults
//! lapse.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::system::uname;
use sqlx::{PgPool, postgres::PgConnectOptions};
use tokio::{runtime, sync::oneshot, time::sleep};

use crate::{
    ACQUIRE, clear_fault,
    ops::report_fault_lasting,
    pool::{self, Limits},
};

/// How often the running steps are checked.
const CHECK: Duration = Duration::from_secs(1);
/// How often a step that does not return is reported.
const REPORT: Duration = Duration::from_secs(30);

/// The steps that this process runs. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Steps(Arc<Mutex<Running>>);

#[derive(Debug, Default)]
struct Running {
    begun: u64,
    steps: BTreeMap<u64, Step>,
}

#[derive(Debug)]
struct Step {
    part: String,
    begun: Instant,
    limit: Duration,
}

/// A step that runs until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct RunningStep {
    steps: Steps,
    number: u64,
}

/// Steps are watched until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct StepWatch {
    _stop: oneshot::Sender<()>,
}

impl Steps {
    /// Registers a step of `part`, which becomes a fault when it has run for `limit`.
    pub fn begin(&self, part: &str, limit: Duration) -> RunningStep {
        let mut running = self.running();
        running.begun += 1;
        let number = running.begun;
        running.steps.insert(number, Step { part: part.to_owned(), begun: Instant::now(), limit });
        RunningStep { steps: self.clone(), number }
    }

    /// Reports steps that do not return to the database of `pool`, through a connection of its own that is made when it is
    /// first needed.
    ///
    /// # Errors
    /// There can be no further thread.
    pub fn watch(&self, pool: &PgPool) -> io::Result<StepWatch> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let (steps, options) = (self.clone(), PgConnectOptions::clone(&pool.connect_options()));
        let watch = async move {
            let pool = pool::lazy(options, Limits { max_connections: 1, acquire: ACQUIRE, one_server: true });
            tokio::select! { () = steps.report_all(&pool) => {}, _ = stopped => {} }
        };
        thread::Builder::new().name("steps".to_owned()).spawn(move || runtime.block_on(watch))?;
        Ok(StepWatch { _stop: stop })
    }

    async fn report_all(&self, pool: &PgPool) {
        let mut reported = BTreeMap::new();
        loop {
            if let Err(error) = self.report(pool, &mut reported).await {
                tracing::debug!(%error, "steps that do not return were not reported");
            }
            sleep(CHECK).await;
        }
    }

    /// `reported` holds the parts that may have a fault, and when it was reported last.
    async fn report(
        &self,
        pool: &PgPool,
        reported: &mut BTreeMap<String, Option<Instant>>,
    ) -> Result<(), sqlx::Error> {
        let overdue = self.overdue();
        let returned: Vec<_> = reported.keys().filter(|part| !overdue.contains_key(*part)).cloned().collect();
        for part in returned {
            clear_fault(pool, &part).await?;
            reported.remove(&part);
        }
        for (part, age) in overdue {
            let last = reported.entry(part.clone()).or_default();
            if last.is_some_and(|at| at.elapsed() < REPORT) {
                continue;
            }
            let reason = format!(
                "a step on {} has not returned for {} s: see what it waits for, such as a disk, and start that process again",
                uname().nodename().to_string_lossy(),
                age.as_secs()
            );
            tracing::error!(part, reason, "a step does not return");
            report_fault_lasting(pool, &part, &reason, age).await?;
            *last = Some(Instant::now());
        }
        Ok(())
    }

    /// The parts whose steps have reached their limits, and how long the longest has run.
    fn overdue(&self) -> BTreeMap<String, Duration> {
        let mut overdue = BTreeMap::new();
        for step in self.running().steps.values() {
            let age = step.begun.elapsed();
            if age >= step.limit {
                let longest: &mut Duration = overdue.entry(step.part.clone()).or_default();
                *longest = age.max(*longest);
            }
        }
        overdue
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RunningStep {
    fn drop(&mut self) {
        self.steps.running().steps.remove(&self.number);
    }
}
