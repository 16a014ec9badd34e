//! Successful answers: bodies with their version, their place, and how consistent they are.

use axum::{
    Json,
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use signalbox_projections::register::At;
use utoipa::ToSchema;

/// A write that has been carried out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Written {
    /// Its place in the log, while the read models do not show it.
    pub(crate) unseen: Option<At>,
    /// Whether something that follows from it is not shown yet, such as the end of an alarm.
    pub(crate) has_pending_effects: bool,
    /// Whether it had been carried out before.
    pub(crate) repeated: bool,
}

/// In an answer: it shows a secret that a repetition computes again, and is not kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NotStored;

/// Says how consistent an answer to a write is.
pub(crate) const CONSISTENCY: HeaderName = HeaderName::from_static("consistency");
/// Its text while not every read model shows the write.
pub(crate) const EVENTUAL: HeaderValue = HeaderValue::from_static("eventual");
const TOTAL_COUNT: HeaderName = HeaderName::from_static("x-total-count");

/// A page of a list in services 2 and 3.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// From 1.
    pub(crate) page: i64,
    pub(crate) page_size: i64,
    /// Rows on all pages.
    pub(crate) total: i64,
    /// Present and true when `total` is an estimate.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) total_estimated: bool,
    pub(crate) data: Vec<T>,
}

/// A success without a resource.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StatusOut {
    #[schema(value_type = crate::http::word_sets::Success)]
    status: &'static str,
    message: &'static str,
}

impl StatusOut {
    pub(crate) fn success(message: &'static str) -> Self {
        Self { status: "success", message }
    }
}

/// One resource and its version.
pub(crate) fn resource<T: Serialize>(version: i64, body: &T) -> Response {
    let mut response = Json(body).into_response();
    set_etag(&mut response, version);
    response
}

/// The answer to a write that shows a secret: it is not kept for repetitions of the request.
pub(crate) fn secret<T: Serialize>(
    done: Written,
    status: StatusCode,
    location: Option<&str>,
    body: &T,
) -> Response {
    unstored(written(done, status, location, body))
}

/// `response`, which shows a secret: it is not kept for repetitions of the request.
pub(crate) fn unstored(mut response: Response) -> Response {
    response.extensions_mut().insert(NotStored);
    response
}

/// A list of service 1: a bare array.
pub(crate) fn list<T: Serialize>(total: i64, rows: &[T]) -> Response {
    let mut response = Json(rows).into_response();
    response.headers_mut().insert(TOTAL_COUNT, HeaderValue::from(total));
    response
}

/// The answer to a write.
pub(crate) fn written<T: Serialize>(
    written: Written,
    status: StatusCode,
    location: Option<&str>,
    body: &T,
) -> Response {
    let mut response = (status, Json(body)).into_response();
    note_consistency(&mut response, written);
    if let Some(location) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// The answer to a write that leaves nothing to show, as deletions do in services 2 and 3.
pub(crate) fn success(done: Written, message: &'static str) -> Response {
    written(done, StatusCode::OK, None, &StatusOut::success(message))
}

/// The answer to a write that made the resource in `body`.
pub(crate) fn created<T: Serialize>(done: Written, location: &str, version: i64, body: &T) -> Response {
    let mut response = written(done, StatusCode::CREATED, Some(location), body);
    set_etag(&mut response, version);
    response
}

/// The answer to a write that changed the resource in `body`.
pub(crate) fn changed<T: Serialize>(done: Written, version: i64, body: &T) -> Response {
    let mut response = written(done, StatusCode::OK, None, body);
    set_etag(&mut response, version);
    response
}

/// The answer to a deletion in service 1.
pub(crate) fn deleted(written: Written) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    note_consistency(&mut response, written);
    response
}

fn set_etag(response: &mut Response, version: i64) {
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{version}\"")) {
        response.headers_mut().insert(header::ETAG, tag);
    }
}

fn note_consistency(response: &mut Response, written: Written) {
    if written.unseen.is_some() || written.has_pending_effects {
        response.headers_mut().insert(CONSISTENCY, EVENTUAL);
    }
}

/// `Content-Disposition` after RFC 6266: plain ASCII for old readers, UTF-8 for the others.
pub(crate) fn attachment(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_graphic() && !matches!(c, '"' | '\\') || c == ' ' { c } else { '_' })
        .collect();
    let encoded: String = name
        .bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}
