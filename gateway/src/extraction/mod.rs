//! Documents become text while the caller waits. What takes longer is a job.

mod extract;
mod formats;
mod options;
mod upload;

use axum::{extract::FromRequestParts, http::request::Parts};
use signalbox_documents::{Documents, Failure};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    auth::{Reader, presented},
    client_address::ClientAddress,
    limits::Rate,
    problem::{Problem, ProblemKind},
    state::{AppState, State as Gateway},
};

/// Documents that are received at the same time; each may lie on disk.
pub(crate) const UPLOADS: usize = 64;

/// The routes of extraction.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(extract::extract))
        .routes(routes!(extract::raw))
        .routes(routes!(extract::document))
        .routes(routes!(formats::formats))
}

/// Whether the answer to a POST on `path` follows from its body alone, which may be large: such a request is the same
/// twice without being remembered.
pub(crate) fn is_pure(path: &str) -> bool {
    matches!(path, "/api/v1/extract" | "/api/v1/extract/raw" | "/api/v1/documents/sync")
}

/// Whoever may have documents read: anybody, unless that is closed. A credential that is shown has to be valid, and
/// takes the place of the limit for strangers.
pub(crate) struct Caller;

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        if presented(parts).is_some() || state.config.extraction.require_auth {
            Reader::from_request_parts(parts, state).await?;
            return Ok(Self);
        }
        let ClientAddress(address) = ClientAddress::from_request_parts(parts, state).await?;
        let per_minute = state.config.limits.anonymous_extractions_per_minute;
        let rate = Rate { per_minute, burst: per_minute };
        let taken = state.limiter.take(&format!("extraction:{address}"), rate, state.clock.now());
        taken.map(|()| Self).map_err(Problem::too_many)
    }
}

/// Who reads documents, if that works here.
fn documents(state: &Gateway) -> Result<&Documents, Problem> {
    state.documents.as_ref().ok_or_else(|| {
        Problem::unavailable("Documents cannot be read on this machine: the log of the service says why.")
    })
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let (kind, code) = match &failure {
            Failure::Empty => (ProblemKind::Malformed, "empty_file"),
            Failure::Unsupported { .. } => (ProblemKind::UnsupportedType, "unsupported_type"),
            Failure::WrongEngine { .. } => (ProblemKind::Invalid, "wrong_engine"),
            Failure::Unavailable { .. } => return Self::unavailable(failure.to_string()),
            Failure::Language { .. } => (ProblemKind::Invalid, "unsupported_language"),
            Failure::Corrupt { .. } => (ProblemKind::Invalid, "corrupt_file"),
            Failure::Encrypted => (ProblemKind::Invalid, "encrypted_file"),
            Failure::TooMuch { .. } => (ProblemKind::Invalid, "limit_exceeded"),
            Failure::Timeout { .. } => (ProblemKind::TimedOut, "time_limit"),
            Failure::Crash => (ProblemKind::Invalid, "parser_failed"),
        };
        Self::new(kind, code, failure.to_string())
    }
}
