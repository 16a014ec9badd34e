//! How problems are written: the bodies of each dialect, and what their headers say.

use axum::{
    Json,
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use serde_json::json;
use signalbox_domain::kernel::FieldPointer;
use utoipa::ToSchema;

use super::{Dialect, Problem, ProblemKind};

/// How to authenticate, in every answer with 401.
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer realm=\"signalbox\"");

/// The same for clients of InfluxDB, which know this scheme.
const INFLUX_CHALLENGE: HeaderValue = HeaderValue::from_static("Token realm=\"signalbox\"");

/// An error of service 1.
#[derive(Debug, Serialize, ToSchema)]
pub struct ErrorOut {
    /// The fault, its cause and its remedy.
    pub error: String,
}

/// An error as clients of InfluxDB expect it: those of version 2 read `code` and `message`, those of version 1 `error`.
#[derive(Debug, Serialize, ToSchema)]
pub struct InfluxErrorOut {
    /// Word of InfluxDB for the status.
    pub code: &'static str,
    /// A text for people, with the first line that was not written.
    pub message: String,
    /// The same as `message`.
    pub error: String,
}

impl InfluxErrorOut {
    fn new(status: StatusCode, message: String) -> Self {
        let code = match status {
            StatusCode::UNAUTHORIZED => "unauthorized",
            StatusCode::FORBIDDEN => "forbidden",
            StatusCode::NOT_FOUND => "not found",
            StatusCode::METHOD_NOT_ALLOWED => "method not allowed",
            StatusCode::PAYLOAD_TOO_LARGE => "request too large",
            StatusCode::TOO_MANY_REQUESTS => "too many requests",
            StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            status if status.is_server_error() => "internal error",
            _ => "invalid",
        };
        Self { code, error: message.clone(), message }
    }
}

/// An error of services 2 and 3, after RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
pub struct ProblemOut {
    /// Always `about:blank`; `code` tells kinds apart.
    pub r#type: String,
    /// The status in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The fault, its cause and its remedy.
    pub detail: String,
    /// Stable word for programs.
    pub code: String,
    /// Names the request in the logs.
    pub request_id: String,
    /// With 422, and with 404 when the body names something that does not exist: each fault with its place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldErrorOut>,
    /// With 409: the resources that conflict, at most ten.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<ConflictOut>,
}

/// A resource that a request conflicts with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct ConflictOut {
    /// Its kind, such as `rule`.
    pub kind: &'static str,
    /// Its id, as paths name it.
    pub public_id: String,
    /// Its name.
    pub name: String,
}

/// There is no such job. It is written like any other error, except for its status.
#[derive(Debug, Serialize, ToSchema)]
pub struct JobNotFoundOut {
    /// Always `about:blank`.
    pub r#type: String,
    /// The HTTP status in words.
    pub title: String,
    /// `not_found`.
    pub status: String,
    /// The fault, its cause and its remedy.
    pub detail: String,
    /// `not_found`.
    pub code: String,
    /// Names the request in the logs.
    pub request_id: String,
}

/// One wrong field.
#[derive(Debug, Serialize, ToSchema)]
pub struct FieldErrorOut {
    /// JSON pointer of the field, or `/` and the name of a query's or a form's field. Empty if no single field is wrong.
    pub pointer: String,
    /// The fault of the field.
    pub message: String,
}

/// Writes the problem that a handler, extractor or layer has left in the response.
pub(crate) fn render(mut response: Response, dialect: Dialect, request_id: &str) -> Response {
    match response.extensions_mut().remove::<Problem>() {
        Some(problem) => write(problem, dialect, request_id, response),
        None => response,
    }
}

fn write(problem: Problem, dialect: Dialect, request_id: &str, bare: Response) -> Response {
    let status = problem.kind.status(dialect);
    let retry_after = problem.retry_after;
    let mut response = match dialect {
        Dialect::Service1 => (status, Json(ErrorOut { error: problem.detail })).into_response(),
        Dialect::Problem => problem_document(problem, status, request_id),
        Dialect::Influx => (status, Json(InfluxErrorOut::new(status, problem.detail))).into_response(),
    };
    // Headers that the layers below have already set, such as WWW-Authenticate or Allow.
    for (name, value) in bare.headers() {
        if name != header::CONTENT_LENGTH && name != header::CONTENT_TYPE {
            response.headers_mut().insert(name.clone(), value.clone());
        }
    }
    if status == StatusCode::UNAUTHORIZED {
        let challenge = if dialect == Dialect::Influx { INFLUX_CHALLENGE } else { CHALLENGE };
        response.headers_mut().entry(header::WWW_AUTHENTICATE).or_insert(challenge);
    }
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn problem_document(problem: Problem, status: StatusCode, request_id: &str) -> Response {
    let is_about_a_field = match problem.kind {
        ProblemKind::Invalid | ProblemKind::KeyReused => true,
        ProblemKind::NotFound => problem.pointer.is_some(),
        _ => false,
    };
    let errors = is_about_a_field.then(|| {
        let pointer = problem.pointer().map_or("", FieldPointer::as_str).to_owned();
        FieldErrorOut { pointer, message: problem.detail.clone() }
    });
    let document = ProblemOut {
        r#type: "about:blank".to_owned(),
        title: status.canonical_reason().unwrap_or_default().to_owned(),
        status: status.as_u16(),
        detail: problem.detail,
        code: problem.code,
        request_id: request_id.to_owned(),
        errors: errors.into_iter().collect(),
        conflicts: problem.conflicts.map(|conflicts| conflicts.0).unwrap_or_default(),
    };
    let mut body = serde_json::to_vec(&document).unwrap_or_else(|_| json!({}).to_string().into_bytes());
    if let Some(state) = problem.state {
        let mut document = json!(document);
        document["status"] = state.into();
        body = document.to_string().into_bytes();
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
