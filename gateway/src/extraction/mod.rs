//! Documents become text while the caller waits. What takes longer is a job.

mod extract;
mod formats;
mod jobs;
mod options;
mod receive;
mod submit;
mod upload;

use std::net::IpAddr;

use axum::{extract::FromRequestParts, http::request::Parts};
use signalbox_documents::{Documents, Failure};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    auth::{Reader, Who, presented},
    client_address::ClientAddress,
    limits::Rate,
    problem::{Problem, ProblemKind},
    state::{AppState, State as Gateway},
};

/// Documents that are received at the same time; each may lie on disk.
pub(crate) const UPLOADS: usize = 64;

/// Texts that are being remembered at the same time; what comes meanwhile is not remembered.
pub(crate) const REMEMBERING: usize = 4;

/// The routes of extraction.
pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(extract::extract))
        .routes(routes!(extract::raw))
        .routes(routes!(extract::document))
        .routes(routes!(formats::formats))
        .routes(routes!(submit::submit, jobs::list))
        .routes(routes!(submit::submit_document))
        .routes(routes!(submit::submit_batch))
        .routes(routes!(jobs::stats))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::result))
}

/// Whether a POST on `path` brings documents, which may be large. The answer of a quick call follows from its body alone: it
/// is the same twice without being remembered. A job is recognised by its handler.
pub(crate) fn takes_documents(path: &str) -> bool {
    path.starts_with("/api/v1/extract")
        || path.starts_with("/api/v1/documents")
        || matches!(path, "/api/v1/jobs" | "/api/v1/jobs/batch")
}

/// Whoever may have documents read: anybody, unless that is closed. A credential that is shown has to be valid, and
/// takes the place of the limit for strangers.
pub(crate) struct Caller {
    pub(crate) who: Option<Who>,
    /// Where a stranger sends from.
    stranger: Option<IpAddr>,
}

/// Whoever may ask about jobs; the limits of all requests are enough for that.
pub(crate) struct Visitor(pub(crate) Option<Who>);

impl FromRequestParts<AppState> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        if presented(parts).is_some() || state.config.extraction.require_auth {
            let Reader(who) = Reader::from_request_parts(parts, state).await?;
            return Ok(Self(Some(who)));
        }
        Ok(Self(None))
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let Visitor(who) = Visitor::from_request_parts(parts, state).await?;
        let ClientAddress(address) = ClientAddress::from_request_parts(parts, state).await?;
        let caller = Self { stranger: who.is_none().then_some(address), who };
        caller.count(state, 1)?;
        Ok(caller)
    }
}

impl Caller {
    /// Counts documents that a stranger sends.
    fn count(&self, state: &Gateway, documents: usize) -> Result<(), Problem> {
        let Some(address) = self.stranger else { return Ok(()) };
        let per_minute = state.config.limits.anonymous_extractions_per_minute;
        let rate = Rate { per_minute, burst: per_minute };
        let key = format!("extraction:{address}");
        (0..documents)
            .try_for_each(|_| state.limiter.take(&key, rate, state.clock.now()))
            .map_err(Problem::too_many)
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
        let kind = match &failure {
            Failure::Empty => ProblemKind::Malformed,
            Failure::Unsupported { .. } => ProblemKind::UnsupportedType,
            Failure::Unavailable { .. } => return Self::unavailable(failure.to_string()),
            Failure::Timeout { .. } => ProblemKind::TimedOut,
            Failure::WrongEngine { .. }
            | Failure::Language { .. }
            | Failure::Corrupt { .. }
            | Failure::Encrypted
            | Failure::TooMuch { .. }
            | Failure::Crash => ProblemKind::Invalid,
        };
        Self::new(kind, failure.code(), failure.to_string())
    }
}
