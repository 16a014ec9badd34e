//! Sends one file to the gateway, and resumes when the connection breaks.

use super::{
    Job, TransferError,
    blocking::{blocking, join},
    progress::FileProgress,
    reader::{Reading, Source},
    retries::Retries,
};
use crate::{
    digest::{Entry, Sha256Hex},
    gateway::{GatewayError, Stored, UploadState},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use reqwest::Body;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::spawn_blocking,
    time::{sleep, timeout},
};

/// Pieces that wait between the reader and the connection.
const PIECES_AHEAD: usize = 4;

/// Result of one try.
enum Try {
    Stored {
        digest: Sha256Hex,
        stored: Stored,
        resumed: bool,
    },
    /// The gateway has less than the whole file, without an error.
    Partial,
}

/// Sends a file as entry `name`. `ask_first`: an earlier attempt may have left a part of it there.
pub async fn send_file(
    job: &Job,
    name: &str,
    source: &Source,
    ask_first: bool,
) -> Result<Entry, TransferError> {
    let progress = FileProgress::new(&job.progress);
    let mut retries = Retries::new(&job.context.config.timing);
    let mut ask = ask_first;
    let mut fresh_tries = 0;
    loop {
        job.interrupt.check()?;
        let sending = Sending { job, name, source, progress: &progress };
        let error = match sending.try_once(ask).await {
            Ok(Try::Stored { digest, stored, .. }) if digest == stored.sha256 => {
                progress.set(stored.size);
                return Ok(Entry { name: name.to_owned(), size: stored.size, sha256: digest });
            }
            // The stored part belonged to another state of the file: send it again from the start.
            Ok(Try::Stored { resumed: true, .. }) if fresh_tries == 0 => {
                fresh_tries += 1;
                ask = false;
                continue;
            }
            Ok(Try::Stored { .. }) => return Err(TransferError::StoredMismatch(source.shown.clone())),
            Ok(Try::Partial) => TransferError::Short(source.shown.clone()),
            // The gateway has less or more than it reported, or dropped it: send it again from the start.
            Err(TransferError::Gateway(GatewayError::OutOfStep(_))) if ask && fresh_tries == 0 => {
                fresh_tries += 1;
                ask = false;
                continue;
            }
            Err(error) if error.is_passing() => error,
            Err(error) => return Err(error),
        };
        retries.wait(error, progress.get(), &job.interrupt).await?;
        ask = true;
    }
}

/// Sends an empty directory, an entry without bytes.
pub async fn send_directory(job: &Job, name: String) -> Result<Entry, TransferError> {
    let timing = &job.context.config.timing;
    let mut retries = Retries::new(timing);
    loop {
        let call = job.context.gateway.upload(job.request.id, &name, 0, 0, Body::from(""));
        let error = match job.interrupt.guard(timeout(timing.request, call)).await? {
            Ok(Ok(UploadState::Stored(stored))) => return Ok(Entry { name, size: 0, sha256: stored.sha256 }),
            Ok(Ok(UploadState::Partial(_))) => TransferError::Short(name.clone()),
            Ok(Err(error)) if error.is_passing() => error.into(),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => GatewayError::Timeout.into(),
        };
        retries.wait(error, 0, &job.interrupt).await?;
    }
}

struct Sending<'a> {
    job: &'a Job,
    name: &'a str,
    source: &'a Source,
    progress: &'a FileProgress<'a>,
}

impl Sending<'_> {
    async fn try_once(&self, ask: bool) -> Result<Try, TransferError> {
        let mut reading = self.open().await?;
        let total = reading.total();
        let mut offset = 0;
        if ask && total > 0 {
            match self.ask(total).await? {
                UploadState::Stored(stored) => return self.compare(reading, stored).await,
                UploadState::Partial(there) if there < total => offset = there,
                UploadState::Partial(_) => {}
            }
        }
        self.progress.set(offset);
        if offset > 0 {
            let interrupt = self.job.interrupt.clone();
            reading = blocking(move || reading.skip(offset, &interrupt).map(|()| reading)).await?;
        }
        self.put(reading, offset, total).await
    }

    async fn open(&self) -> Result<Reading, TransferError> {
        let source = self.source.clone();
        blocking(move || Reading::open(&source)).await
    }

    async fn ask(&self, total: u64) -> Result<UploadState, TransferError> {
        let call = self.job.context.gateway.uploaded(self.job.request.id, self.name, total);
        Ok(self.job.interrupt.guard(call).await??)
    }

    async fn compare(&self, reading: Reading, stored: Stored) -> Result<Try, TransferError> {
        let interrupt = self.job.interrupt.clone();
        let digest = blocking(move || reading.digest(&interrupt)).await?;
        Ok(Try::Stored { digest, stored, resumed: true })
    }

    async fn put(&self, reading: Reading, offset: u64, total: u64) -> Result<Try, TransferError> {
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let reader = spawn_blocking(move || reading.send(&sender));
        let taken = Arc::new(AtomicU64::new(0));
        let body = Body::wrap_stream(body(receiver, taken.clone()));
        let context = &self.job.context;
        let call = context.gateway.upload(self.job.request.id, self.name, offset, total, body);
        let watch = self.watch(&taken, offset, total);
        let answer = self
            .job
            .interrupt
            .guard(async {
                tokio::select! {
                    answer = call => answer.map_err(TransferError::from),
                    stalled = watch => Err(stalled),
                }
            })
            .await
            .unwrap_or_else(|reason| Err(reason.into()));
        // The call is over and has dropped the body, so the reader ends now, if it has not before.
        let read = join(reader).await;
        match (answer, read) {
            (Err(TransferError::Interrupted(reason)), _) => Err(reason.into()),
            // The reader stopped because the connection did, so the connection's error is the cause.
            (Err(error), Ok(_) | Err(TransferError::Short(_))) => Err(error),
            (_, Err(error)) => Err(error),
            (Ok(UploadState::Partial(_)), Ok(_)) => Ok(Try::Partial),
            (Ok(UploadState::Stored(stored)), Ok(digest)) => {
                Ok(Try::Stored { digest, stored, resumed: offset > 0 })
            }
        }
    }

    /// Follows the bytes that the connection took, and ends when they stand still for too long: sooner if the connection for
    /// messages has broken meanwhile.
    async fn watch(&self, taken: &AtomicU64, offset: u64, total: u64) -> TransferError {
        let (timing, gateway) = (&self.job.context.config.timing, &self.job.context.gateway);
        let (step, breaks) = (timing.progress.min(timing.stall / 4), gateway.breaks());
        let mut seen = 0;
        let mut idle = Duration::ZERO;
        loop {
            sleep(step).await;
            let now = taken.load(Ordering::Relaxed);
            idle = if now == seen { idle + step } else { Duration::ZERO };
            seen = now;
            self.progress.set(offset + now);
            let limit = match offset + now >= total {
                // The answer to the last byte may take minutes, but none arrives over a broken connection.
                _ if gateway.breaks() != breaks => timing.connect,
                true => timing.answer,
                false => timing.stall,
            };
            if idle >= limit {
                return TransferError::Stalled(limit.as_secs());
            }
        }
    }
}

fn body(
    receiver: mpsc::Receiver<io::Result<Bytes>>,
    taken: Arc<AtomicU64>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let pieces = stream::unfold(receiver, async |mut receiver| {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    });
    pieces.inspect(move |piece| {
        let length = piece.as_ref().map_or(0, Bytes::len);
        taken.fetch_add(length as u64, Ordering::Relaxed);
    })
}
