//! Bytes from the blob store to the destination agent.

use std::{
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt};
use serde::Deserialize;
use signalbox_blob_store::{BlobKey, BlobStore};
use signalbox_clock::Clock;
use signalbox_domain::transfer::{Leg, Phase, Transfer, TransferCommand, TransferStatus, TransportMode};
use signalbox_messaging::{Bus, Wakeup};
use signalbox_projections::{
    Lookup,
    transfer::{TransferFileRow, TransferRow, queries},
};
use sqlx::PgPool;
use tokio::{
    sync::broadcast,
    time::{Instant, interval_at, sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};
use utoipa::IntoParams;
use uuid::Uuid;

use super::{
    legs::{Asked, OpenBody, watch_arrival},
    peer::{self, Peer},
    progress::Counted,
    requests,
    upload::{DISPATCH_LAG, all_is_shown, blob_problem, gone, missing, stopped},
};
use crate::{
    answer::attachment,
    auth::AgentAuth,
    client_address::ClientAddress,
    connections::{Delivery, Exchange},
    extract::{Number, Params, digits},
    problem::{ErrorOut, Problem, ProblemKind},
    revocation::cut_answer,
    services::{agent_work::Work, consistency::ReadGate, replica::Database},
    transfer::{
        services::TransferServices,
        staged_tree::{MAX_ENTRIES, tar_stream},
    },
};

/// How often the bytes of a download are told to the log.
const REPORT: Duration = Duration::from_secs(1);

/// The entry to download.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct DownloadParams {
    /// An entry of a tree; without it, a tree comes as a tar archive.
    filename: Option<String>,
}

/// Download a file, an entry of a tree, or a tree as a tar archive. `Range` is supported for files.
#[utoipa::path(get, path = "/api/files/{id}/download", tag = "files", security(("agent" = [])), params(("id" = i64, Path,), DownloadParams), operation_id = "download_file",
    responses((status = 200, content((Vec<u8> = "application/octet-stream"), (Vec<u8> = "application/x-tar"))), (status = 206, content_type = "application/octet-stream", body = Vec<u8>),
        (status = 401, body = ErrorOut), (status = 404, body = ErrorOut), (status = 409, body = ErrorOut), (status = 416, body = ErrorOut)))]
pub(crate) async fn download(
    State(services): State<TransferServices>,
    auth: AgentAuth,
    ClientAddress(address): ClientAddress,
    Number(number): Number,
    Params(params): Params<DownloadParams>,
    asked: Asked,
) -> Result<Response, Problem> {
    let work = services.agent_work.begin(&auth);
    let row = downloadable(&services.database, &services.gate, &auth, number).await?;
    let peer = Peer { auth, address, transport: TransportMode::Polling };
    begin(&services.clock, &services.bus, &peer, &row).await?;
    match (row.is_tree(), params.filename) {
        (true, None) => {
            whole_tree(&services.database, &services.blobs, &services.wakeups, work, row, &asked).await
        }
        (false, None) => {
            let file = queries::transfer_files(&services.database.primary, row.id, 1).await?.pop();
            one_file(&services, &peer, work, row, file, &asked).await
        }
        (_, Some(name)) => {
            let file = queries::transfer_file(&services.database.primary, row.id, &name).await?;
            one_file(&services, &peer, work, row, file, &asked).await
        }
    }
}

/// The transfer, if the agent may download it now.
async fn downloadable(
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
        match row.phase.known()? {
            // The agent may have been asked before the read model shows it.
            Phase::Queued | Phase::Dispatched | Phase::Uploading if Instant::now() < deadline => {
                sleep(Duration::from_millis(20)).await;
            }
            Phase::Queued | Phase::Dispatched | Phase::Uploading if !is_shown => {
                is_shown = all_is_shown(gate, &row).await?;
            }
            Phase::Queued | Phase::Dispatched | Phase::Uploading => return Err(gone()),
            _ => return readable(&row).map(|()| row),
        }
    }
}

/// Staged bytes can be read until they are deleted, also again after the transfer has ended.
pub(super) fn readable(row: &TransferRow) -> Result<(), Problem> {
    match row.phase.known()? {
        Phase::Staged | Phase::Downloading => Ok(()),
        Phase::Done if row.sha256.is_some() && !row.cleaned && !row.status.is(TransferStatus::Cancelled) => {
            Ok(())
        }
        Phase::Done => Err(Problem::not_found("File")),
        _ => Err(gone()),
    }
}

/// Tells the log that the destination has begun to download, before the first byte goes out.
pub(super) async fn begin(clock: &Clock, bus: &Bus, peer: &Peer, row: &TransferRow) -> Result<(), Problem> {
    if !row.phase.is(Phase::Staged) || row.destination_agent_id != peer.auth.agent {
        return Ok(());
    }
    let command = TransferCommand::Progress {
        leg: Leg::Download,
        bytes: 0,
        total: row.size.map(i64::unsigned_abs),
        attempt: Some(row.attempts.unsigned_abs()),
    };
    bus.send::<Transfer>(row.id.0, None, &peer::metadata(clock, peer), &command).await?;
    Ok(())
}

async fn one_file(
    services: &TransferServices,
    peer: &Peer,
    work: Work,
    row: TransferRow,
    file: Option<TransferFileRow>,
    asked: &Asked,
) -> Result<Response, Problem> {
    let file = file.ok_or_else(|| Problem::not_found("File"))?;
    let size = file.size.unsigned_abs();
    let range = match requested_range(&asked.headers, &file.sha256, size) {
        Ok(range) => range,
        Err(problem) => {
            let mut refused = problem.into_response();
            insert(refused.headers_mut(), header::CONTENT_RANGE, &format!("bytes */{size}"));
            return Ok(refused);
        }
    };
    let key = BlobKey::new(row.id.0, &file.name);
    let (_, bytes) = services.blobs.read(&key, range.clone()).await.map_err(blob_problem)?;
    let length = range.as_ref().map_or(size, |range| range.end - range.start);
    let reports = row.destination_agent_id == peer.auth.agent && !row.is_tree() && !row.phase.is(Phase::Done);
    let body = (!row.is_tree()).then(|| requests::Body::new(services, peer, row.number, Leg::Download));
    let bytes = cut_when_stopped(
        services.wakeups.clone(),
        services.database.primary.clone(),
        work,
        body,
        &row,
        asked.exchange(),
        bytes,
    );
    let offset = range.as_ref().map_or(0, |range| range.start);
    let body = if reports {
        let open = OpenBody::begin(&services.database.primary, &row, Leg::Download).await?;
        let delivery = if range.is_none() {
            watch_arrival(&services.database, &services.config, &services.stop, &row, asked).await?
        } else {
            None
        };
        let (sent, reporting) = report(services, peer, &row, offset);
        let open = open.counting(&file.sha256, offset, sent.clone());
        let counter = Counter { sent, end: offset + length, delivery, _open: open, _reporting: reporting };
        Body::from_stream(counted(bytes, counter))
    } else {
        Body::from_stream(bytes)
    };
    let mut response = Response::new(body);
    describe(response.headers_mut(), &file, length);
    if let Some(range) = range {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let content_range = format!("bytes {}-{}/{size}", range.start, range.end - 1);
        insert(response.headers_mut(), header::CONTENT_RANGE, &content_range);
    }
    Ok(response)
}

async fn whole_tree(
    database: &Database,
    blobs: &BlobStore,
    wakeups: &broadcast::Sender<Wakeup>,
    work: Work,
    row: TransferRow,
    asked: &Asked,
) -> Result<Response, Problem> {
    let files = queries::transfer_files(&database.primary, row.id, MAX_ENTRIES).await?;
    let tar = tar_stream(blobs.clone(), row.id.0, files);
    let bytes =
        cut_when_stopped(wakeups.clone(), database.primary.clone(), work, None, &row, asked.exchange(), tar);
    let mut response = Body::from_stream(bytes).into_response();
    insert(response.headers_mut(), header::CONTENT_TYPE, "application/x-tar");
    insert(
        response.headers_mut(),
        header::CONTENT_DISPOSITION,
        &attachment(&format!("{}.tar", row.filename)),
    );
    Ok(response)
}

fn describe(headers: &mut HeaderMap, file: &TransferFileRow, length: u64) {
    let name = file.name.rsplit('/').next().unwrap_or_default();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    insert(headers, header::ETAG, &format!("\"{}\"", file.sha256));
    insert(headers, header::CONTENT_DISPOSITION, &attachment(name));
}

fn insert(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// The bytes that `Range` asks for; `None` for all. Several ranges at once are answered with all bytes.
fn requested_range(headers: &HeaderMap, sha256: &str, size: u64) -> Result<Option<Range<u64>>, Problem> {
    let Some(text) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else {
        return Ok(None);
    };
    let stale =
        headers.get(header::IF_RANGE).is_some_and(|tag| tag.as_bytes() != format!("\"{sha256}\"").as_bytes());
    let Some(spec) = text.trim().strip_prefix("bytes=").filter(|spec| !stale && !spec.contains(',')) else {
        return Ok(None);
    };
    let Some((first, last)) = spec.split_once('-') else { return Ok(None) };
    let range = match (digits::<u64>(first), digits::<u64>(last)) {
        (Some(first), Some(last)) if first <= last => first..last.saturating_add(1).min(size),
        (Some(first), None) if last.is_empty() => first..size,
        (None, Some(last)) if first.is_empty() => size.saturating_sub(last)..size,
        _ => return Ok(None),
    };
    if range.is_empty() {
        return Err(Problem::new(
            ProblemKind::RangeNotSatisfiable,
            "range_not_satisfiable",
            format!("the range lies outside the file of {size} bytes"),
        ));
    }
    Ok(Some(range))
}

/// Breaks the body off, and with it the connection, when a user stops the transfer or the agent's token is void, also while
/// the agent reads nothing.
fn cut_when_stopped(
    wakeups: broadcast::Sender<Wakeup>,
    pool: PgPool,
    work: Work,
    body: Option<requests::Body>,
    row: &TransferRow,
    exchange: Option<Exchange>,
    bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let id = row.id;
    let stop = async move {
        let _body = body;
        tokio::select! {
            () = stopped(&wakeups, &pool, id) => "the transfer was stopped",
            () = work.void.cancelled() => "the agent token is void",
        }
    };
    cut_answer(bytes, stop, exchange)
}

/// Counts the bytes that were sent; the last report follows when the stream is dropped.
struct Counter {
    sent: Arc<AtomicU64>,
    /// Where the body ends in the file.
    end: u64,
    /// Set while it is watched whether the file reaches the agent.
    delivery: Option<Delivery>,
    _open: OpenBody,
    _reporting: DropGuard,
}

/// Records once a second how many bytes were sent, and a last time after the end. This shows progress and is no evidence of
/// arrival: sent bytes may still wait in a buffer on the way.
fn report(
    services: &TransferServices,
    peer: &Peer,
    row: &TransferRow,
    offset: u64,
) -> (Arc<AtomicU64>, DropGuard) {
    let (sent, end) = (Arc::new(AtomicU64::new(offset)), CancellationToken::new());
    let (counted, ended) = (sent.clone(), end.clone());
    let (services, peer, id) = (services.clone(), peer.clone(), row.id.0);
    let progress = Counted::new(row, Leg::Download, row.size.map(i64::unsigned_abs));
    tokio::spawn(async move {
        progress.begin(&services.clock, &services.bus, &peer.auth.actor(), offset).await;
        let mut ticks = interval_at(Instant::now() + REPORT, REPORT);
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                () = ended.cancelled() => true,
            };
            // Most agents report within this time, and then there is nothing left to say.
            if is_last {
                sleep(REPORT).await;
                if is_over(&services.transfers, id).await {
                    return;
                }
            }
            progress
                .note(&services.clock, &services.bus, &peer.auth.actor(), counted.load(Ordering::Relaxed))
                .await;
            if is_last {
                return;
            }
        }
    });
    (sent, end.drop_guard())
}

impl Counter {
    fn count(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
        self.note_end();
    }

    fn note_end(&self) {
        if let Some(delivery) =
            self.delivery.as_ref().filter(|_| self.sent.load(Ordering::Relaxed) == self.end)
        {
            delivery.note_handed();
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        // An empty file has no chunk.
        self.note_end();
    }
}

async fn is_over(transfers: &Lookup<TransferRow>, id: Uuid) -> bool {
    let row = transfers.get(id).await;
    row.is_ok_and(|row| row.is_none_or(|row| !row.phase.is(Phase::Downloading)))
}

fn counted(
    bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    counter: Counter,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    bytes.inspect(move |chunk| {
        if let Ok(chunk) = chunk {
            counter.count(chunk.len());
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> Result<Option<Range<u64>>, ProblemKind> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_str(text).unwrap());
        requested_range(&headers, "abc", 10).map_err(|problem| problem.kind())
    }

    #[test]
    fn ranges_are_cut_to_the_file() {
        assert_eq!(range("bytes=0-3"), Ok(Some(0..4)));
        assert_eq!(range("bytes=8-99"), Ok(Some(8..10)));
        assert_eq!(range("bytes=4-"), Ok(Some(4..10)));
        assert_eq!(range("bytes=-3"), Ok(Some(7..10)));
        assert_eq!(range("bytes=10-"), Err(ProblemKind::RangeNotSatisfiable));
        assert_eq!(range("bytes=0-1,3-4"), Ok(None));
        assert_eq!(range("lines=0-1"), Ok(None));
    }

    #[test]
    fn odd_file_names_are_sent_safely() {
        let header = attachment("Ä\"\r\n.txt");
        assert_eq!(header, "attachment; filename=\"____.txt\"; filename*=UTF-8''%C3%84%22%0D%0A.txt");
        assert!(HeaderValue::from_str(&header).is_ok());
    }
}
