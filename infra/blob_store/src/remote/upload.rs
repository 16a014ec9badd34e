use std::mem;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use signalbox_domain::kernel::Sha256Hex;
use tokio::task::{JoinHandle, spawn_blocking};
use uuid::Uuid;

use super::{
    BucketContext, RemoteStore,
    record::{Part, Record, Run, Segment, Whole, extended, size},
    slot::{Lost, Slot},
};
use crate::{
    BlobError, BlobKey, Start,
    error::{IoContext, joined},
    receive::{Kept, Sink},
};

/// So many uploads of one file may begin in the same moment.
const RIVALS: usize = 100;
/// From this number of runs on, only full segments are kept of an interrupted upload.
const RUNS: usize = 1_000;

/// A name that no other upload has.
pub(super) fn new_writer() -> Uuid {
    uuid::Builder::from_random_bytes(rand::random()).into_uuid()
}

impl RemoteStore {
    /// Takes the file over from whatever upload has it.
    pub(crate) async fn begin(&self, key: &BlobKey, start: Start) -> Result<Upload, BlobError> {
        let writer = new_writer();
        // Most files are new.
        let mut slot = match start {
            Start::Anew => Slot::absent(self, key),
            Start::At { .. } => Slot::load(self, key).await?,
        };
        for _ in 0..RIVALS {
            let runs = continued(&slot.record, start)?;
            let older = slot.record.part.clone();
            let part = Some(Part { writer, runs: runs.clone() });
            let record = Record { part, ..slot.record.clone() };
            match slot.replace(record).await {
                Ok(()) => {
                    if let (Start::Anew, Some(older)) = (start, older) {
                        self.discard(key, &older.runs).await;
                    }
                    return Upload::begun(slot, writer, &runs).await;
                }
                Err(Lost::To(now)) => slot = *now,
                Err(Lost::Failed(error)) => return Err(error),
            }
        }
        Err(BlobError::Superseded)
    }
}

/// The segments that an upload starting at `start` continues.
fn continued(record: &Record, start: Start) -> Result<Vec<Run>, BlobError> {
    let Start::At { offset, .. } = start else { return Ok(Vec::new()) };
    match (&record.part, &record.whole) {
        (Some(part), _) if part.size() == offset => Ok(part.runs.clone()),
        (Some(part), _) => Err(BlobError::WrongOffset { present: part.size() }),
        // Also beside a complete file, which the new one replaces.
        (None, _) if offset == 0 => Ok(Vec::new()),
        (None, whole) => Err(BlobError::WrongOffset { present: whole.as_ref().map_or(0, Whole::size) }),
    }
}

/// The way of an upload's bytes to the bucket. One segment fills from the network while another is hashed and sent.
pub(crate) struct Upload {
    state: State,
    filling: Vec<u8>,
    segment_bytes: usize,
}

enum State {
    Idle(Box<Brought>),
    /// The task continues when the upload is dropped, so that a segment that is nearly complete is kept.
    Busy(JoinHandle<Result<Brought, BlobError>>),
}

/// The bytes received by an upload.
struct Brought {
    slot: Slot,
    writer: Uuid,
    /// Number of its next segment.
    next: u32,
    hasher: Sha256,
    /// A segment that is there and not in the record yet.
    last: Option<Segment>,
}

/// The bytes received by an upload, all of them in the bucket.
pub(crate) struct Settled {
    brought: Brought,
    sha256: Sha256Hex,
}

impl Upload {
    /// Continues behind `runs`. They are hashed again, which also checks that they still exist.
    async fn begun(mut slot: Slot, writer: Uuid, runs: &[Run]) -> Result<Self, BlobError> {
        let Some(hasher) = slot.store().hash(slot.key(), runs).await? else {
            let record = Record { part: None, ..slot.record.clone() };
            match slot.replace(record).await {
                Ok(()) => slot.store().discard(slot.key(), runs).await,
                Err(Lost::To(_)) => {}
                Err(Lost::Failed(error)) => return Err(error),
            }
            return Err(BlobError::WrongOffset { present: 0 });
        };
        let segment_bytes = slot.store().0.segment_bytes;
        let brought = Brought { slot, writer, next: 0, hasher, last: None };
        Ok(Self { state: State::Idle(Box::new(brought)), filling: Vec::new(), segment_bytes })
    }

    /// Hands the filled segment over, once the one before it is there.
    async fn write(self) -> Result<Self, BlobError> {
        let Self { state, filling, segment_bytes } = self;
        let brought = state.idle().await?;
        let task = tokio::spawn(async move { brought.write(filling.into()).await?.record().await });
        Ok(Self { state: State::Busy(task), filling: Vec::with_capacity(segment_bytes), segment_bytes })
    }
}

impl State {
    async fn idle(self) -> Result<Brought, BlobError> {
        match self {
            Self::Idle(brought) => Ok(*brought),
            Self::Busy(task) => joined(task.await),
        }
    }
}

impl Sink for Upload {
    type Kept = Settled;

    /// Waits while the bucket lags by more than a segment.
    async fn push(mut self, mut bytes: &[u8]) -> Result<Self, BlobError> {
        while !bytes.is_empty() {
            let room = self.segment_bytes - self.filling.len();
            let (fitting, rest) = bytes.split_at(room.min(bytes.len()));
            self.filling.extend_from_slice(fitting);
            bytes = rest;
            if self.filling.len() == self.segment_bytes {
                self = self.write().await?;
            }
        }
        Ok(self)
    }

    async fn settle(self) -> Result<Settled, BlobError> {
        let mut brought = self.state.idle().await?;
        if !self.filling.is_empty() {
            brought = brought.write(self.filling.into()).await?;
        }
        let sha256 = Sha256Hex::from_bytes(&brought.hasher.clone().finalize());
        Ok(Settled { brought, sha256 })
    }

    async fn refuse(self, reason: BlobError) -> BlobError {
        match self.state.idle().await {
            Ok(brought) => brought.refuse(reason).await,
            Err(error) => error,
        }
    }
}

impl Brought {
    /// Adds a segment that is not in the record yet.
    async fn write(mut self, bytes: Bytes) -> Result<Self, BlobError> {
        let segment = Segment { writer: self.writer, number: self.next, bytes: bytes.len() as u64 };
        let path = self.slot.store().segment_path(self.slot.key(), &segment);
        let (mut hasher, hashed) = (mem::take(&mut self.hasher), bytes.clone());
        let hashing = spawn_blocking(move || {
            hasher.update(&hashed);
            hasher
        });
        self.slot.store().put(&path, bytes).await.doing("write a segment")?;
        self.hasher = hashing.await.during("hash a segment")?;
        self.next += 1;
        self.last = Some(segment);
        Ok(self)
    }

    /// All that was brought.
    fn runs(&self) -> Vec<Run> {
        let recorded = self.slot.record.part.as_ref().map_or(Vec::new(), |part| part.runs.clone());
        match &self.last {
            Some(last) => extended(recorded, last),
            None => recorded,
        }
    }

    /// Puts the last segment into the record.
    async fn record(self) -> Result<Self, BlobError> {
        let part = Some(Part { writer: self.writer, runs: self.runs() });
        let record = Record { part, ..self.slot.record.clone() };
        self.replace(record).await
    }

    async fn replace(mut self, record: Record) -> Result<Self, BlobError> {
        match self.slot.replace(record).await {
            Ok(()) => {
                self.last = None;
                Ok(self)
            }
            Err(Lost::Failed(error)) => Err(error),
            Err(Lost::To(now)) => {
                self.abandon(&now.record).await;
                Err(BlobError::Superseded)
            }
        }
    }

    /// Deletes the last segment, unless it is in the record after all, and belongs to another upload now.
    async fn abandon(&self, record: &Record) {
        if let Some(last) = &self.last
            && record.segments().all(|segment| segment != *last)
        {
            self.slot.store().discard(self.slot.key(), &extended(Vec::new(), last)).await;
        }
    }

    async fn refuse(self, reason: BlobError) -> BlobError {
        let runs = self.runs();
        let record = Record { part: None, ..self.slot.record.clone() };
        match self.replace(record).await {
            Ok(done) => {
                done.slot.store().discard(done.slot.key(), &runs).await;
                reason
            }
            Err(BlobError::Superseded) => reason,
            Err(error) => error,
        }
    }
}

impl Kept for Settled {
    fn size(&self) -> u64 {
        size(&self.brought.runs())
    }

    fn sha256(&self) -> &Sha256Hex {
        &self.sha256
    }

    async fn keep(self) -> Result<u64, BlobError> {
        let Some(last) = &self.brought.last else { return Ok(self.size()) };
        let store = self.brought.slot.store();
        let is_short = (last.bytes as usize) < store.0.segment_bytes;
        if is_short && self.brought.runs().len() > RUNS {
            store.discard(self.brought.slot.key(), &extended(Vec::new(), last)).await;
            return Ok(self.size() - last.bytes);
        }
        let size = self.size();
        self.brought.record().await.map(|_| size)
    }

    async fn finish(self) -> Result<(), BlobError> {
        let older = self.brought.slot.record.whole.clone();
        let whole = Some(Whole { sha256: self.sha256, runs: self.brought.runs() });
        let done = self.brought.replace(Record { whole, part: None }).await?;
        if let Some(older) = older {
            done.slot.store().discard(done.slot.key(), &older.runs).await;
        }
        Ok(())
    }

    async fn refuse(self, reason: BlobError) -> BlobError {
        self.brought.refuse(reason).await
    }
}
