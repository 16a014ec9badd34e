use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use signalbox_domain::kernel::ExtractionJobId;
use signalbox_projections::extraction::ExtractionJobRow;
use tokio::task::AbortHandle;
use uuid::Uuid;

/// The documents that this process reads now, by their claims. Clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Running(Arc<Mutex<HashMap<Uuid, Reading>>>);

/// A document that is being read.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    pub(super) job: ExtractionJobId,
    /// Version of the job when it was claimed: the read model may not show that yet.
    pub(super) version: i64,
    /// Whether it was submitted without a login.
    pub(super) is_anonymous: bool,
    /// Ends the reading, and the process that parses with it.
    abort: Option<AbortHandle>,
}

/// A place among those that read; free when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    running: Running,
    claim: Uuid,
}

impl Running {
    /// Takes a place for `claim` on `job`.
    pub(super) fn enter(&self, claim: Uuid, job: &ExtractionJobRow, version: i64) -> Place {
        let is_anonymous = job.owner_id.is_none();
        self.lock().insert(claim, Reading { job: job.id, version, is_anonymous, abort: None });
        Place { running: self.clone(), claim }
    }

    /// Registers how to stop the reading under `claim`. One that has already finished stays so.
    pub(super) fn set_abort(&self, claim: Uuid, abort: AbortHandle) {
        if let Some(reading) = self.lock().get_mut(&claim) {
            reading.abort = Some(abort);
        }
    }

    /// Stops the reading under `claim`, if it is still running.
    pub(super) fn stop(&self, claim: Uuid) {
        if let Some(abort) = self.lock().get(&claim).and_then(|reading| reading.abort.clone()) {
            abort.abort();
        }
    }

    /// All that go on, with their claims.
    pub(super) fn all(&self) -> Vec<(Uuid, Reading)> {
        self.lock().iter().map(|(claim, reading)| (*claim, reading.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Reading>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.running.lock().remove(&self.claim);
    }
}
