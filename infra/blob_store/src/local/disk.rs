use std::{mem, sync::Arc};

use sha2::{Digest, Sha256};
use signalbox_domain::kernel::Sha256Hex;
use tokio::task::{JoinHandle, spawn_blocking};

use super::part::Part;
use crate::{
    BlobError,
    error::{joined, off_thread},
    receive::{Kept, Sink},
};

/// So many unwritten bytes are worth two jobs on the blocking pool: waking its threads costs little beside them.
const WORTH_WRITING: usize = 256 * 1024;
/// So many are not exceeded: the network waits until the disk has caught up.
const BUFFER: usize = 1024 * 1024;
/// Bytes after which the kernel starts to write to the disk, so that the fsync at the end of a file has little left
/// to do.
const SYNC_EVERY: u64 = 64 * 1024 * 1024;

/// The way of an upload's bytes to the disk. One buffer fills from the network while another is hashed and written,
/// each on a core of its own.
///
/// The bytes are copied once, out of the HTTP server's buffer: it can then receive into the same memory again, which is
/// still in the processor's cache, instead of faulting in fresh pages for each chunk. That costs less than it saves.
///
/// Each buffer is two short jobs on the blocking pool, so that an upload that waits for its client holds no thread.
pub(crate) struct Disk {
    state: State,
    filling: Vec<u8>,
    spare: Vec<u8>,
    sync: Option<JoinHandle<Result<(), BlobError>>>,
    synced: u64,
}

enum State {
    Idle(Part, Sha256),
    Busy { write: JoinHandle<Result<Part, BlobError>>, hash: JoinHandle<Sha256>, buffer: Arc<Vec<u8>> },
}

impl Disk {
    /// Continues `part`, whose bytes `hasher` has seen.
    pub(crate) fn new(part: Part, hasher: Sha256) -> Self {
        let synced = part.size();
        Self { state: State::Idle(part, hasher), filling: Vec::new(), spare: Vec::new(), sync: None, synced }
    }

    /// Hands the filled buffer over, once the one before it is done.
    async fn write(mut self) -> Result<Self, BlobError> {
        let (part, mut hasher, done) = self.state.idle().await?;
        if let Some(done) = done {
            self.spare = done;
        }
        self.sync = keep_syncing(self.sync, &part, &mut self.synced).await?;
        let buffer = Arc::new(mem::replace(&mut self.filling, mem::take(&mut self.spare)));
        let (to_write, to_hash) = (Arc::clone(&buffer), Arc::clone(&buffer));
        let write = spawn_blocking(move || part.append(&to_write));
        let hash = spawn_blocking(move || {
            hasher.update(to_hash.as_slice());
            hasher
        });
        Ok(Self { state: State::Busy { write, hash, buffer }, ..self })
    }
}

impl Sink for Disk {
    type Kept = Written;

    /// Waits while the disk lags by more than a buffer.
    async fn push(mut self, mut bytes: &[u8]) -> Result<Self, BlobError> {
        while !bytes.is_empty() {
            let room = BUFFER - self.filling.len();
            let (fitting, rest) = bytes.split_at(room.min(bytes.len()));
            self.filling.extend_from_slice(fitting);
            bytes = rest;
            let full = self.filling.len() == BUFFER;
            if full || self.filling.len() >= WORTH_WRITING && self.state.is_idle() {
                self = self.write().await?;
            }
        }
        Ok(self)
    }

    async fn settle(mut self) -> Result<Written, BlobError> {
        if !self.filling.is_empty() {
            self = self.write().await?;
        }
        let (part, hasher, _) = self.state.idle().await?;
        if let Some(sync) = self.sync {
            // This sync may have received a write error that the fsync at the end would not report again.
            joined(sync.await)?;
        }
        Ok(Written { part, sha256: Sha256Hex::from_bytes(&hasher.finalize()) })
    }

    async fn refuse(self, reason: BlobError) -> BlobError {
        match self.state.idle().await {
            Ok((part, ..)) => refuse(part, reason).await,
            Err(error) => error,
        }
    }
}

/// A part whose bytes are all written.
pub(crate) struct Written {
    part: Part,
    sha256: Sha256Hex,
}

impl Kept for Written {
    fn size(&self) -> u64 {
        self.part.size()
    }

    fn sha256(&self) -> &Sha256Hex {
        &self.sha256
    }

    /// It is on the disk already.
    async fn keep(self) -> Result<u64, BlobError> {
        Ok(self.part.size())
    }

    async fn finish(self) -> Result<(), BlobError> {
        off_thread(move || self.part.finish()).await
    }

    async fn refuse(self, reason: BlobError) -> BlobError {
        refuse(self.part, reason).await
    }
}

async fn refuse(part: Part, reason: BlobError) -> BlobError {
    off_thread(move || Ok(part.refuse(reason))).await.unwrap_or_else(|error| error)
}

impl State {
    fn is_idle(&self) -> bool {
        match self {
            Self::Idle(..) => true,
            Self::Busy { write, hash, .. } => write.is_finished() && hash.is_finished(),
        }
    }

    /// Waits for the buffer that is in progress and returns it, empty.
    async fn idle(self) -> Result<(Part, Sha256, Option<Vec<u8>>), BlobError> {
        match self {
            Self::Idle(part, hasher) => Ok((part, hasher, None)),
            Self::Busy { write, hash, buffer } => {
                let hasher = joined(hash.await.map(Ok))?;
                let part = joined(write.await)?;
                let buffer = Arc::into_inner(buffer).map(|mut buffer| {
                    buffer.clear();
                    buffer
                });
                Ok((part, hasher, buffer))
            }
        }
    }
}

type Sync = Option<JoinHandle<Result<(), BlobError>>>;

/// Starts another sync beside the upload when enough has been written since, unless one still runs.
async fn keep_syncing(running: Sync, part: &Part, synced: &mut u64) -> Result<Sync, BlobError> {
    if part.size() - *synced < SYNC_EVERY || running.as_ref().is_some_and(|sync| !sync.is_finished()) {
        return Ok(running);
    }
    if let Some(sync) = running {
        joined(sync.await)?;
    }
    *synced = part.size();
    let file = part.file();
    Ok(Some(spawn_blocking(move || file.sync_data().map_err(|error| BlobError::io("sync a part", error)))))
}
