//! The stand-in gateway's calls for bytes.

use crate::gateway::{Gate, Inner, Shared, Stored, error};
use axum::{
    Json,
    body::{Body, Bytes},
    extract::{Path, Query, Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures::{StreamExt, stream};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::{collections::HashMap, io, sync::Arc};

type Names = Query<HashMap<String, String>>;

pub fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

pub fn tree_digest<'a>(files: impl IntoIterator<Item = (&'a String, &'a Stored)>) -> String {
    // A BTreeMap's order is that of the names' bytes.
    let lines = files.into_iter().map(|(name, file)| format!("{}  {name}\n", digest(&file.bytes)));
    digest(lines.collect::<String>().as_bytes())
}

fn note(shared: &Shared, call: &str, id: u64, name: &str, range: Option<&str>) -> Option<Response> {
    shared.change(|inner| {
        inner.calls.push(format!("{call} {id} {name} {}", range.unwrap_or("whole")));
        match inner.faults.answers.get(&id) {
            Some(status) => Some(error(*status, "on purpose")),
            None if inner.transfers.contains_key(&id) => None,
            None => Some(error(StatusCode::NOT_FOUND, "transfer not found")),
        }
    })
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().unwrap().to_owned())
}

pub async fn upload(
    State(shared): Gate,
    Path(id): Path<u64>,
    Query(names): Names,
    request: Request,
) -> Response {
    let range = text(request.headers(), header::CONTENT_RANGE);
    let name = names.get("filename").cloned().unwrap_or_default();
    if let Some(refusal) = note(&shared, "PUT", id, &name, range.as_deref()) {
        return refusal;
    }
    let length: Option<u64> =
        text(request.headers(), header::CONTENT_LENGTH).map(|text| text.parse().unwrap());
    let total = match plan(&mut shared.lock(), id, &name, range.as_deref(), length) {
        Ok(total) => total,
        Err(response) => return *response,
    };
    if receive(&shared, id, &name, request.into_body()).await.is_err() {
        return error(StatusCode::BAD_REQUEST, "the body broke");
    }
    shared.change(|inner| state_of(inner, id, &name, total))
}

/// Gives the length the file will have, or the answer when no bytes are to follow.
fn plan(
    inner: &mut Inner,
    id: u64,
    name: &str,
    range: Option<&str>,
    length: Option<u64>,
) -> Result<u64, Box<Response>> {
    let Some(length) = length else {
        inner.violations.push("an upload without its length".to_owned());
        return Err(Box::new(error(StatusCode::LENGTH_REQUIRED, "length")));
    };
    let Some(range) = range else {
        inner.transfers.get_mut(&id).unwrap().insert(name.to_owned(), Stored::default());
        return Ok(length);
    };
    let (part, total) = range.strip_prefix("bytes ").unwrap().split_once('/').unwrap();
    let total: u64 = total.parse().unwrap();
    if part == "*" {
        return Err(Box::new(state_of(inner, id, name, total)));
    }
    let (first, last) = part.split_once('-').unwrap();
    let (first, last): (u64, u64) = (first.parse().unwrap(), last.parse().unwrap());
    if first + length != last + 1 {
        inner.violations.push(format!("{range} with a body of {length} bytes"));
    }
    let there = inner.transfers[&id].get(name).map_or(0, |file| file.bytes.len() as u64);
    if first == there { Ok(total) } else { Err(Box::new(error(StatusCode::RANGE_NOT_SATISFIABLE, "offset"))) }
}

async fn receive(shared: &Arc<Shared>, id: u64, name: &str, body: Body) -> Result<(), axum::Error> {
    let mut body = body.into_data_stream();
    while let Some(piece) = body.next().await {
        let piece = piece?;
        let stalls = shared.change(|inner| {
            let file = inner.transfers.get_mut(&id).unwrap().get_mut(name).unwrap();
            file.bytes.extend_from_slice(&piece);
            inner.faults.uploads_stall_after.is_some_and(|limit| file.bytes.len() >= limit)
        });
        if stalls {
            shared.until(|inner| inner.faults.uploads_stall_after.is_none().then_some(())).await;
        }
    }
    Ok(())
}

fn state_of(inner: &mut Inner, id: u64, name: &str, total: u64) -> Response {
    let lies = inner.faults.lies_about_digests;
    let Some(file) = inner.transfers.get_mut(&id).unwrap().get_mut(name) else {
        return StatusCode::PERMANENT_REDIRECT.into_response();
    };
    let there = file.bytes.len() as u64;
    if there < total {
        let range = (there > 0).then(|| [(header::RANGE, format!("bytes=0-{}", there - 1))]);
        return (
            StatusCode::PERMANENT_REDIRECT,
            range.map_or(HeaderMap::new(), |[(key, value)]| {
                HeaderMap::from_iter([(key, value.parse().unwrap())])
            }),
        )
            .into_response();
    }
    file.complete = true;
    let sha256 = if lies { digest(b"something else") } else { digest(&file.bytes) };
    let answer =
        json!({ "transfer_id": id, "filename": name, "size": there, "agent_id": 1, "sha256": sha256 });
    Json(answer).into_response()
}

pub async fn download(
    State(shared): Gate,
    Path(id): Path<u64>,
    Query(names): Names,
    headers: HeaderMap,
) -> Response {
    let range = text(&headers, header::RANGE);
    let name = names.get("filename").cloned().unwrap_or_default();
    if let Some(refusal) = note(&shared, "GET", id, &name, range.as_deref()) {
        return refusal;
    }
    let inner = shared.lock();
    let files = &inner.transfers[&id];
    let file = if name.is_empty() { files.values().next() } else { files.get(&name) };
    let Some(file) = file else { return error(StatusCode::NOT_FOUND, "transfer file not found") };
    let start = range.map_or(0, |range| {
        range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse::<usize>().unwrap()
    });
    if start > 0 && start >= file.bytes.len() {
        return error(StatusCode::RANGE_NOT_SATISFIABLE, "range");
    }
    let tag = (header::ETAG, format!("\"{}\"", digest(&file.bytes)));
    let body = download_body(file.bytes[start..].to_vec(), inner.faults.downloads_stall_after);
    if start == 0 {
        return ([tag], body).into_response();
    }
    let length = file.bytes.len();
    let range = (header::CONTENT_RANGE, format!("bytes {start}-{}/{length}", length - 1));
    (StatusCode::PARTIAL_CONTENT, [tag, range], body).into_response()
}

fn download_body(bytes: Vec<u8>, stall_after: Option<usize>) -> Body {
    let Some(limit) = stall_after.filter(|limit| *limit < bytes.len()) else { return Body::from(bytes) };
    let start = stream::once(async move { Ok::<_, io::Error>(Bytes::from(bytes[..limit].to_vec())) });
    Body::from_stream(start.chain(stream::pending()))
}

pub async fn manifest(State(shared): Gate, Path(id): Path<u64>) -> Response {
    if let Some(refusal) = note(&shared, "MANIFEST", id, "", None) {
        return refusal;
    }
    let inner = shared.lock();
    let complete = inner.transfers[&id].iter().filter(|(_, file)| file.complete);
    let files: Vec<_> = complete
        .clone()
        .map(|(name, file)| json!({ "name": name, "size": file.bytes.len(), "sha256": digest(&file.bytes) }))
        .collect();
    Json(json!({ "files": files, "sha256": tree_digest(complete) })).into_response()
}
