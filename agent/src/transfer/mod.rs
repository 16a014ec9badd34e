//! Moving the bytes of one attempt: `upload` and `download`, and what both share.

mod blocking;
mod download;
mod error;
mod fetch;
mod interrupt;
mod part;
mod patience;
mod progress;
mod reader;
mod send;
mod together;
mod upload;
mod walk;

pub use error::TransferError;
pub use interrupt::{Interrupt, Reason};
pub use progress::Progress;

use crate::{
    config::Config,
    confine::Roots,
    digest::{Entry, Sha256Hex, tree_digest},
    gateway::Gateway,
    protocol::{Direction, TransferRequest},
};
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// Files are read and hashed in pieces of this size.
const BUFFER: usize = 512 * 1024;

/// What every transfer of this agent uses.
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

/// What an attempt moved.
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
pub struct Parts(Mutex<BTreeSet<PathBuf>>);

impl Parts {
    fn add(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
    }

    fn remove(&self, path: &Path) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path);
    }

    /// Deletes the files.
    pub fn delete(&self) {
        for path in std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner)) {
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "a temporary file cannot be removed");
            }
        }
    }
}
