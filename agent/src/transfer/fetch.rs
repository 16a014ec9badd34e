//! Fetches one file from the gateway into a temporary file, and resumes when the connection breaks.

use super::{
    Job, TransferError,
    blocking::{blocking, join},
    part::Part,
    progress::FileProgress,
    retries::Retries,
};
use crate::{
    confine::Folder,
    digest::{Entry, Sha256Hex},
    gateway::GatewayError,
};
use reqwest::{
    Response, StatusCode,
    header::{CONTENT_RANGE, ETAG},
};
use std::{sync::Arc, time::Duration};
use tokio::{sync::mpsc, task::spawn_blocking, time::timeout};

/// Pieces that wait between the connection and the disk.
const PIECES_AHEAD: usize = 16;

/// A file to be fetched.
#[derive(Debug)]
pub struct Target {
    /// Destination folder.
    pub folder: Arc<Folder>,
    pub name: String,
    /// Its name in the tree; `None` for a single file.
    pub entry: Option<String>,
    /// Expected size, if it is known.
    pub size: Option<u64>,
    pub sha256: Option<Sha256Hex>,
}

/// Fetches a file, checks it, and gives it its name.
pub async fn fetch_file(job: &Job, target: &Target) -> Result<Entry, TransferError> {
    let progress = FileProgress::new(&job.progress);
    let mut fetching = Fetching { job, target, progress: &progress, etag: None };
    let mut retries = Retries::new(&job.context.config.timing);
    let mut part = fetching.open(target.sha256.is_some()).await?;
    // The part of an earlier try may belong to another state of the file, so a wrong digest is not final yet.
    let mut inherited = part.length() > 0;
    loop {
        let (back, fetched) = fetching.try_once(part).await?;
        part = back;
        let error = match fetched {
            Ok(()) if fetching.is_right(&part) => return fetching.finish(part).await,
            Ok(()) if inherited => {
                inherited = false;
                part = fetching.empty(part).await?;
                continue;
            }
            Ok(()) => return Err(TransferError::Mismatch(target.name.clone())),
            Err(error) if error.is_passing() => error,
            Err(error) => return Err(error),
        };
        retries.wait(error, part.length(), &job.interrupt).await?;
    }
}

struct Fetching<'a> {
    job: &'a Job,
    target: &'a Target,
    progress: &'a FileProgress<'a>,
    /// The file's digest as reported by the gateway.
    etag: Option<Sha256Hex>,
}

impl Fetching<'_> {
    async fn open(&self, resumable: bool) -> Result<Part, TransferError> {
        let (folder, name) = (self.target.folder.clone(), self.target.name.clone());
        let (id, parts) = (self.job.request.id, self.job.parts.clone());
        let interrupt = self.job.interrupt.clone();
        let keep = resumable.then(|| self.target.size.unwrap_or(u64::MAX));
        blocking(move || Part::open(&folder, &name, id, keep, &parts, &interrupt)).await
    }

    async fn empty(&self, mut part: Part) -> Result<Part, TransferError> {
        blocking(move || part.empty().map(|()| part)).await
    }

    /// One request. Returns the part with the received bytes; the outer error is a local one.
    async fn try_once(&mut self, part: Part) -> Result<(Part, Result<(), TransferError>), TransferError> {
        let offset = part.length();
        self.progress.set(offset);
        if offset > 0 && self.target.size == Some(offset) {
            return Ok((part, Ok(())));
        }
        let response = match self.request(offset).await {
            Ok(response) => response,
            // The file is shorter than the part, so the part is wrong.
            Err(TransferError::Gateway(GatewayError::OutOfStep(_))) if offset > 0 => {
                return Ok((self.empty(part).await?, Err(TransferError::Short(self.target.name.clone()))));
            }
            Err(error) => return Ok((part, Err(error))),
        };
        self.etag = etag(&response).or(self.etag.take());
        match start_of(&response) {
            Some(start) if start == offset => self.pump(part, response).await,
            Some(0) => self.pump(self.empty(part).await?, response).await,
            _ => Ok((part, Err(GatewayError::BadAnswer("it is not the range that was asked for").into()))),
        }
    }

    async fn request(&self, offset: u64) -> Result<Response, TransferError> {
        let call =
            self.job.context.gateway.download(self.job.request.id, self.target.entry.as_deref(), offset);
        match self.job.interrupt.guard(timeout(self.stall(), call)).await? {
            Ok(response) => Ok(response?),
            Err(_) => Err(TransferError::Stalled(self.stall().as_secs())),
        }
    }

    /// Carries the body to the disk.
    async fn pump(
        &self,
        part: Part,
        mut response: Response,
    ) -> Result<(Part, Result<(), TransferError>), TransferError> {
        let mut received = part.length();
        let (sender, receiver) = mpsc::channel(PIECES_AHEAD);
        let writer = spawn_blocking(move || part.write(receiver));
        let fetched = loop {
            let piece = match self.next(&mut response).await {
                Ok(Some(piece)) => piece,
                Ok(None) => break self.check_length(received),
                Err(error) => break Err(error),
            };
            received += piece.len() as u64;
            if self.target.size.is_some_and(|size| received > size) {
                break Err(TransferError::Mismatch(self.target.name.clone()));
            }
            if sender.send(piece).await.is_err() {
                break Ok(());
            }
            self.progress.set(received);
        };
        drop(sender);
        // The writer's own error explains why the sender failed.
        Ok((join(writer).await?, fetched))
    }

    async fn next(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, TransferError> {
        match self.job.interrupt.guard(timeout(self.stall(), response.chunk())).await? {
            Ok(piece) => Ok(piece.map_err(GatewayError::from)?),
            Err(_) => Err(TransferError::Stalled(self.stall().as_secs())),
        }
    }

    fn check_length(&self, received: u64) -> Result<(), TransferError> {
        match self.target.size {
            Some(size) if received < size => Err(TransferError::Short(self.target.name.clone())),
            _ => Ok(()),
        }
    }

    fn is_right(&self, part: &Part) -> bool {
        let expected = self.target.sha256.as_ref().or(self.etag.as_ref());
        expected.is_none_or(|expected| *expected == part.digest())
    }

    async fn finish(&self, part: Part) -> Result<Entry, TransferError> {
        let entry = Entry {
            name: self.target.entry.clone().unwrap_or_else(|| self.target.name.clone()),
            size: part.length(),
            sha256: part.digest(),
        };
        let parts = self.job.parts.clone();
        blocking(move || part.finish(&parts)).await?;
        self.progress.set(entry.size);
        Ok(entry)
    }

    fn stall(&self) -> Duration {
        self.job.context.config.timing.stall
    }
}

/// Offset of the body in the file.
fn start_of(response: &Response) -> Option<u64> {
    if response.status() != StatusCode::PARTIAL_CONTENT {
        return Some(0);
    }
    let range = response.headers().get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

fn etag(response: &Response) -> Option<Sha256Hex> {
    let etag = response.headers().get(ETAG)?.to_str().ok()?;
    Sha256Hex::parse(etag.trim_start_matches("W/").trim_matches('"'))
}
