//! Bytes from the source agent, or from the owner of a transfer, into the blob store.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use axum::{
    Json,
    extract::{Request, State},
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use base64::{Engine, prelude::BASE64_STANDARD};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};
use signalbox_blob_store::{BlobError, BlobKey, Progress, Receive, Received, Start};
use signalbox_domain::{
    kernel::{Actor, Sha256Hex, TransferId},
    transfer::{Leg, Phase, StagedFile, Transfer, TransferCommand, TransportMode, check_path},
};
use signalbox_messaging::Wakeup;
use signalbox_projections::transfer::{TransferRow, queries};
use sqlx::PgPool;
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{Instant, interval_at, sleep},
};
use utoipa::{IntoParams, ToSchema};

use super::{
    legs::OpenBody,
    peer::{Peer, metadata_of},
    progress::Counted,
    requests,
};
use crate::{
    auth::AgentAuth,
    blobs::unusable,
    client_address::ClientAddress,
    extract::{Number, Params, content_length, digits},
    problem::{ErrorOut, Problem, ProblemKind},
    services::{agent_work::Work, consistency::ReadGate, replica::Database},
    transfer::services::TransferServices,
};

/// How often the bytes of an upload are told to the log.
const REPORT: Duration = Duration::from_secs(1);
/// Part of a file that is worth a note.
const NOTED_SHARE: u64 = 100;
/// How often a body that is under way looks whether its transfer was cancelled.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a call that comes before the read model knows of its dispatch waits for it.
pub(super) const DISPATCH_LAG: Duration = Duration::from_secs(2);
const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-content-sha256");
const DIGEST: HeaderName = HeaderName::from_static("digest");

/// The entry to upload.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct UploadParams {
    /// File name, or path in the tree; `file.dat` if absent.
    pub(super) filename: Option<String>,
}

/// A stored entry.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UploadOut {
    transfer_id: i64,
    filename: String,
    /// Bytes.
    size: u64,
    agent_id: i64,
    /// Of the bytes.
    sha256: String,
}

/// `Content-Range` of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ContentRange {
    /// `bytes */TOTAL`: how far did it get?
    Ask { total: u64 },
    /// `bytes A-B/TOTAL`.
    Part { offset: u64, length: u64, total: u64 },
}

/// Upload a file, or an entry of a tree.
#[utoipa::path(put, path = "/api/files/{id}/upload", tag = "files", security(("agent" = [])), params(("id" = i64, Path,), UploadParams), operation_id = "upload_file",
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, body = UploadOut), (status = 308, description = "More bytes are expected; Range says how many are there"), (status = 400, body = ErrorOut),
        (status = 401, body = ErrorOut), (status = 404, body = ErrorOut), (status = 409, body = ErrorOut), (status = 413, body = ErrorOut), (status = 416, body = ErrorOut)))]
pub(crate) async fn upload(
    State(services): State<TransferServices>,
    auth: AgentAuth,
    ClientAddress(address): ClientAddress,
    Number(number): Number,
    Params(params): Params<UploadParams>,
    request: Request,
) -> Result<Response, Problem> {
    let work = services.agent_work.begin(&auth);
    let row = uploadable(&services.database, &services.gate, &auth, number).await?;
    let name = entry_name(&row, params.filename.as_deref().unwrap_or("file.dat"))?;
    let peer = Peer { auth, address, transport: TransportMode::Polling };
    let _body = (!row.is_tree()).then(|| requests::Body::new(&services, &peer, row.number, Leg::Upload));
    let (transfer_id, agent_id) = (row.number, peer.auth.number);
    match Upload::new(&services, Sender::Agent(peer, work), row, name.clone()).run(request).await? {
        Uploaded::Whole { size, sha256 } => {
            let sha256 = sha256.into();
            Ok(Json(UploadOut { transfer_id, filename: name, size, agent_id, sha256 }).into_response())
        }
        Uploaded::Part { size } => Ok(incomplete(size)),
    }
}

/// The sender of the bytes.
pub(super) enum Sender {
    /// The source agent, until its token is void.
    Agent(Peer, Work),
    /// The owner, whose bodies end with the credential.
    Owner(Actor),
}

/// The stored part of the file at the end of a request.
pub(super) enum Uploaded {
    /// All bytes; the entry is staged.
    Whole { size: u64, sha256: Sha256Hex },
    /// Not yet all.
    Part { size: u64 },
}

pub(super) struct Upload<'a> {
    services: &'a TransferServices,
    sender: Sender,
    row: TransferRow,
    name: String,
    key: BlobKey,
}

impl Sender {
    fn actor(&self) -> Actor {
        match self {
            Self::Agent(peer, _) => peer.auth.actor(),
            Self::Owner(actor) => actor.clone(),
        }
    }

    async fn void(&self) {
        match self {
            Self::Agent(_, work) => work.void.cancelled().await,
            Self::Owner(_) => std::future::pending().await,
        }
    }
}

impl<'a> Upload<'a> {
    pub(super) fn new(
        services: &'a TransferServices,
        sender: Sender,
        row: TransferRow,
        name: String,
    ) -> Self {
        Self { key: BlobKey::new(row.id.0, &name), services, sender, row, name }
    }

    pub(super) async fn run(&self, request: Request) -> Result<Uploaded, Problem> {
        match content_range(request.headers())? {
            Some(ContentRange::Ask { total }) => self.say_how_far(total).await,
            range => self.receive(range, request).await,
        }
    }

    async fn say_how_far(&self, total: u64) -> Result<Uploaded, Problem> {
        match self.services.blobs.received(&self.key).await.map_err(blob_problem)? {
            Progress::Complete { size } if size == total => {
                let sha256 = self.services.blobs.digest(&self.key).await.map_err(blob_problem)?;
                self.stage(size, sha256).await
            }
            Progress::Part(size) => Ok(Uploaded::Part { size }),
            Progress::Complete { .. } | Progress::Nothing => Ok(Uploaded::Part { size: 0 }),
        }
    }

    async fn receive(&self, range: Option<ContentRange>, request: Request) -> Result<Uploaded, Problem> {
        let receive = self.receive_request(range, request.headers())?;
        // The entries of a tree come from agents that list capabilities; those repeat what broke by themselves.
        let is_noted = matches!(self.sender, Sender::Agent(..)) && !self.row.is_tree();
        let _open = match is_noted {
            true => Some(OpenBody::begin(&self.services.database.primary, &self.row, Leg::Upload).await?),
            false => None,
        };
        let offset = if let Start::At { offset, .. } = receive.start { offset } else { 0 };
        let total = if let Start::At { total, .. } = receive.start { Some(total) } else { receive.total };
        let received = AtomicU64::new(offset);
        let body = request.into_body().into_data_stream().map_err(std::io::Error::other);
        let storing = self
            .services
            .blobs
            .receive(&self.key, receive, body, |bytes| received.store(bytes, Ordering::Relaxed));
        let outcome = tokio::select! {
            outcome = storing => outcome.map_err(|error| self.refuse(error))?,
            () = self.report(&received, offset, total) => return Err(Problem::internal(&"an upload was left alone")),
            () = stopped(&self.services.wakeups, &self.services.database.primary, self.row.id) => return Err(gone()),
            () = self.sender.void() => return Err(Work::refusal()),
        };
        match outcome {
            Received::Complete { size, sha256 } => self.stage(size, sha256).await,
            Received::Partial { size } => {
                self.note_piece(size, total).await;
                Ok(Uploaded::Part { size })
            }
        }
    }

    /// Notes a piece that came in less time than progress is reported in: the first one, and those that are a hundredth of the file or
    /// more, so that small pieces do not fill the log.
    async fn note_piece(&self, size: u64, total: Option<u64>) {
        let before = self.row.uploaded.unsigned_abs();
        let is_worth = self.row.phase.is(Phase::Dispatched)
            || size.abs_diff(before) >= total.unwrap_or_default() / NOTED_SHARE;
        if is_worth && !self.row.is_tree() {
            let TransferServices { clock, bus, .. } = self.services;
            Counted::new(&self.row, Leg::Upload, total).note(clock, bus, &self.sender.actor(), size).await;
        }
    }

    fn receive_request(&self, range: Option<ContentRange>, headers: &HeaderMap) -> Result<Receive, Problem> {
        let body = content_length(headers);
        let (start, total) = match range {
            Some(ContentRange::Part { length, .. }) if body.is_some_and(|body| body != length) => {
                let detail =
                    "the body does not have the length of its Content-Range: send the bytes that it names";
                return Err(Problem::malformed(detail));
            }
            Some(ContentRange::Part { offset, length, total }) => (Start::At { offset, total }, Some(length)),
            _ => (Start::Anew, body),
        };
        let limit = if self.is_directory() { 0 } else { self.services.config.transfer.max_file_bytes };
        if matches!(start, Start::At { total, .. } if total > limit) {
            return Err(self.refuse(BlobError::TooLarge { limit }));
        }
        Ok(Receive { start, limit, expected_sha256: announced_digest(headers)?, total })
    }

    fn is_directory(&self) -> bool {
        self.name.ends_with('/')
    }

    fn refuse(&self, error: BlobError) -> Problem {
        match error {
            BlobError::TooLarge { .. } if self.is_directory() => {
                let detail = "the entry has a body, but its filename ends in '/' and so names a directory";
                Problem::invalid(detail).about("filename")
            }
            error => blob_problem(error),
        }
    }

    /// Tells the log how many bytes have come, until the upload ends.
    async fn report(&self, received: &AtomicU64, offset: u64, total: Option<u64>) {
        // The bytes of a tree are the sum of its entries, which only the agent knows while they come.
        if self.row.is_tree() {
            return std::future::pending().await;
        }
        let progress = Counted::new(&self.row, Leg::Upload, total);
        let actor = self.sender.actor();
        progress.begin(&self.services.clock, &self.services.bus, &actor, offset).await;
        let mut ticks = interval_at(Instant::now() + REPORT, REPORT);
        loop {
            ticks.tick().await;
            progress
                .note(&self.services.clock, &self.services.bus, &actor, received.load(Ordering::Relaxed))
                .await;
        }
    }

    /// Records the entry; only then is it said to be there.
    async fn stage(&self, size: u64, sha256: Sha256Hex) -> Result<Uploaded, Problem> {
        let file = StagedFile { name: self.name.clone(), size, sha256: sha256.clone() };
        let metadata = metadata_of(&self.services.clock, self.sender.actor());
        let command = TransferCommand::Stage { files: vec![file] };
        self.services.commands.write::<Transfer>(self.row.id.0, None, &metadata, &command).await?;
        Ok(Uploaded::Whole { size, sha256 })
    }
}

/// The transfer, if it is the agent's to upload and takes an upload now.
async fn uploadable(
    database: &Database,
    gate: &ReadGate,
    auth: &AgentAuth,
    number: i64,
) -> Result<TransferRow, Problem> {
    let deadline = Instant::now() + DISPATCH_LAG;
    let mut is_shown = false;
    loop {
        let row =
            queries::transfer_of_agent(&database.primary, auth.agent, number).await?.ok_or_else(missing)?;
        if row.source_agent_id != Some(auth.agent) {
            return Err(missing());
        }
        match row.phase.known()? {
            Phase::Dispatched | Phase::Uploading => return Ok(row),
            // The agent may have been asked before the read model shows it.
            Phase::Queued if Instant::now() < deadline => sleep(Duration::from_millis(20)).await,
            Phase::Queued if !is_shown => is_shown = all_is_shown(gate, &row).await?,
            _ => return Err(gone()),
        }
    }
}

/// A name that is safe to be shown and to be written by the destination: relative, within the limits of file systems,
/// without `..`, empty parts or NUL.
pub(super) fn entry_name(row: &TransferRow, name: &str) -> Result<String, Problem> {
    let invalid = |reason: &str| Problem::field("filename", reason);
    check_path(name, &['/']).map_err(|error| invalid(&error.to_string()))?;
    if !row.is_tree() {
        let base = name.rsplit('/').next().unwrap_or_default();
        return if matches!(base, "" | "." | "..") {
            Err(invalid("names no file"))
        } else {
            Ok(base.to_owned())
        };
    }
    let parts = name.strip_suffix('/').unwrap_or(name).split('/');
    if parts.into_iter().any(|part| matches!(part, "" | "." | "..")) {
        return Err(invalid("must be a relative path without empty parts, '.' and '..'"));
    }
    Ok(name.to_owned())
}

/// The size of the file, in a request that asks how much of it is there.
pub(super) fn asked_total(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    Ok(content_range(headers)?.and_then(|range| match range {
        ContentRange::Ask { total } => Some(total),
        ContentRange::Part { .. } => None,
    }))
}

fn content_range(headers: &HeaderMap) -> Result<Option<ContentRange>, Problem> {
    let Some(value) = headers.get(header::CONTENT_RANGE) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(parse_content_range);
    parsed
        .map(Some)
        .ok_or_else(|| Problem::malformed("Content-Range must be 'bytes A-B/TOTAL' or 'bytes */TOTAL'"))
}

fn parse_content_range(text: &str) -> Option<ContentRange> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let total = digits(total)?;
    if range == "*" {
        return Some(ContentRange::Ask { total });
    }
    let (first, last) = range.split_once('-')?;
    let (offset, last): (u64, u64) = (digits(first)?, digits(last)?);
    let length = last.checked_sub(offset)?.checked_add(1)?;
    (last < total).then_some(ContentRange::Part { offset, length, total })
}

/// The SHA-256 of `X-Content-SHA256` (hex) or `Digest: sha-256=` (base64).
fn announced_digest(headers: &HeaderMap) -> Result<Option<Sha256Hex>, Problem> {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).map(str::trim);
    let hex = text(CONTENT_SHA256).map(str::parse::<Sha256Hex>).transpose();
    let hex = hex.map_err(|_| Problem::malformed("X-Content-SHA256 must be 64 hex digits"))?;
    let digest = text(DIGEST).into_iter().flat_map(|value| value.split(',')).find_map(|part| {
        let (algorithm, value) = part.trim().split_once('=')?;
        algorithm.eq_ignore_ascii_case("sha-256").then_some(value)
    });
    let Some(base64) = digest else { return Ok(hex) };
    let bytes = BASE64_STANDARD.decode(base64).ok().filter(|bytes| bytes.len() == 32);
    let bytes = bytes.ok_or_else(|| Problem::malformed("Digest: sha-256 must be 32 bytes in base64"))?;
    let announced = Sha256Hex::from_bytes(&bytes);
    if hex.is_some_and(|hex| hex != announced) {
        return Err(Problem::malformed(
            "X-Content-SHA256 and Digest announce different digests: send one of them",
        ));
    }
    Ok(Some(announced))
}

/// 308, with what is there.
pub(super) fn incomplete(present: u64) -> Response {
    let mut response = StatusCode::PERMANENT_REDIRECT.into_response();
    if let Some(last) = present.checked_sub(1)
        && let Ok(range) = HeaderValue::from_str(&format!("bytes=0-{last}"))
    {
        response.headers_mut().insert(header::RANGE, range);
    }
    response
}

/// Waits until transfer `id` is stopped by a user. A wake-up may be lost on its way, so its row is looked at, too.
pub(super) async fn stopped(wakeups: &broadcast::Sender<Wakeup>, pool: &PgPool, id: TransferId) {
    tokio::select! {
        () = heard_of_stop(wakeups.subscribe(), id) => {}
        () = cancelled_in_row(pool, id) => {}
    }
}

async fn heard_of_stop(mut wakeups: broadcast::Receiver<Wakeup>, id: TransferId) {
    loop {
        match wakeups.recv().await {
            Ok(Wakeup::TransferStopped { transfer }) if transfer == id.0 => return,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return std::future::pending().await,
        }
    }
}

async fn cancelled_in_row(pool: &PgPool, id: TransferId) {
    loop {
        sleep(LOOK_AGAIN).await;
        match queries::transfer_is_cancelled(pool, id).await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "whether a transfer was cancelled is looked up later"),
        }
    }
}

pub(super) fn blob_problem(error: BlobError) -> Problem {
    match error {
        BlobError::TooLarge { limit } => too_large(limit),
        BlobError::ChecksumMismatch { .. } => {
            Problem::malformed("the bytes do not have the announced SHA-256: send them again")
        }
        BlobError::Overrun { .. } => Problem::malformed(
            "more bytes came than were announced: ask with Content-Range: bytes */TOTAL how many are there, and go on behind them",
        ),
        BlobError::WrongOffset { present } => {
            let detail = format!(
                "the upload does not continue where it ended: {present} bytes are there; a piece from 0 on replaces a complete file"
            );
            Problem::new(ProblemKind::RangeNotSatisfiable, "wrong_offset", detail)
        }
        BlobError::Interrupted { .. } => Problem::malformed("the body ended early"),
        BlobError::Superseded => Problem::conflict("superseded", "another upload of this file took over"),
        BlobError::NotFound => Problem::not_found("File"),
        BlobError::DiskFull { .. }
        | BlobError::Unavailable { .. }
        | BlobError::Misconfigured { .. }
        | BlobError::Io { .. } => unusable(&error),
    }
}

fn too_large(limit: u64) -> Problem {
    Problem::too_large(format!("file exceeds the maximum upload size of {limit} bytes"))
}

pub(super) fn missing() -> Problem {
    Problem::not_found("Transfer")
}

/// True once the read model shows all that has happened to the transfer, so that it has to be read again before a call is refused for
/// good: an agent that is refused so waits until it is asked again, which takes half a minute or more.
///
/// # Errors
/// 503 when it does not.
pub(super) async fn all_is_shown(gate: &ReadGate, row: &TransferRow) -> Result<bool, Problem> {
    if gate.shows::<Transfer>(row.id.0).await? {
        return Ok(true);
    }
    Err(Problem::unavailable("The service does not show yet that this was asked for: try again in a moment."))
}

pub(super) fn gone() -> Problem {
    Problem::conflict(
        "wrong_phase",
        "the transfer does not take this now: it has ended or is at another step",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges_are_read() {
        let part = ContentRange::Part { offset: 5, length: 5, total: 20 };
        assert_eq!(parse_content_range("bytes 5-9/20"), Some(part));
        assert_eq!(parse_content_range("bytes */20"), Some(ContentRange::Ask { total: 20 }));
        for wrong in [
            "bytes 9-5/20",
            "bytes 0-20/20",
            "items 0-1/2",
            "bytes 0-1/*",
            "bytes",
            "bytes 0-18446744073709551615/1",
        ] {
            assert_eq!(parse_content_range(wrong), None, "{wrong}");
        }
    }
}
