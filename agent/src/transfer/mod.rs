//! Moves the bytes of one attempt: `upload`, `download`, and their shared code.

mod blocking;
mod download;
mod error;
mod fetch;
mod interrupt;
mod names;
mod part;
mod progress;
mod reader;
mod retries;
mod send;
mod together;
mod upload;
mod walk;

pub use error::TransferError;
pub use interrupt::{Interrupt, Reason};
pub use progress::Progress;

use crate::{
    config::Config,
    confine::{Folder, Place, Roots},
    digest::{Entry, Sha256Hex, tree_digest},
    gateway::Gateway,
    protocol::{Direction, TransferRequest},
};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Files are read and hashed in pieces of this size.
const BUFFER: usize = 512 * 1024;

/// Shared by all transfers of this agent.
#[derive(Debug)]
pub struct Context {
    pub config: Config,
    pub gateway: Gateway,
    pub roots: Roots,
}

/// One attempt of one transfer.
pub struct Job {
    pub context: Arc<Context>,
    pub request: TransferRequest,
    pub interrupt: Interrupt,
    pub progress: Arc<Progress>,
    pub parts: Arc<Parts>,
}

/// The files moved by an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moved {
    pub sha256: Sha256Hex,
    pub files: u64,
    pub bytes: u64,
}

impl Moved {
    fn file(entry: Entry) -> Self {
        Self { sha256: entry.sha256, files: 1, bytes: entry.size }
    }

    fn tree(entries: &[Entry]) -> Self {
        let bytes = entries.iter().map(|entry| entry.size).sum();
        Self { sha256: tree_digest(entries), files: entries.len() as u64, bytes }
    }
}

impl Job {
    /// Does the work of the attempt.
    pub async fn run(&self) -> Result<Moved, TransferError> {
        for path in [&self.request.source_path, &self.request.destination_path] {
            names::check_length(path)?;
        }
        match self.request.direction {
            Direction::Upload => upload::run(self).await,
            Direction::Download => download::run(self).await,
        }
    }

    /// The same job with a switch of its own, for files that move together.
    fn group(&self) -> Self {
        Self {
            context: self.context.clone(),
            request: self.request.clone(),
            interrupt: self.interrupt.group(),
            progress: self.progress.clone(),
            parts: self.parts.clone(),
        }
    }
}

/// The temporary files of an attempt that are on disk now.
#[derive(Debug, Default)]
pub struct Parts(Mutex<BTreeMap<PathBuf, Place>>);

impl Parts {
    fn add(&self, folder: &Folder, name: &str) {
        let place = folder.place().join(name.as_ref());
        self.lock().insert(place.path(), place);
    }

    fn remove(&self, folder: &Folder, name: &str) {
        self.lock().remove(&folder.place().join(name.as_ref()).path());
    }

    /// Deletes the files.
    pub fn delete(&self) {
        let places = std::mem::take(&mut *self.lock());
        for (path, place) in places {
            if let Err(error) = place.remove()
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "a temporary file cannot be removed");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
