//! The closed list of what can go wrong for a client, and how it is written.
//!
//! Service 1 answers `{"error": string}`; services 2 and 3 answer RFC 9457 problem documents. Which one is decided by
//! the policy of the route, in [`render`], so that handlers and extractors need not know.

use std::fmt::Display;

use axum::{
    http::StatusCode,
    response::{IntoResponse, Response},
};
use signalbox_domain::kernel::{ErrorKind, FieldPointer, Rejection};
use signalbox_messaging::BusError;
use signalbox_projections::UnknownWord;

mod body;

pub(crate) use body::render;
pub use body::{ConflictOut, ErrorOut, InfluxErrorOut, JobNotFoundOut, ProblemOut};

/// How errors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// As an object with one text, with 400 for invalid values.
    Service1,
    /// As problem documents.
    Problem,
    /// As InfluxDB does, for its clients, with 400 for invalid values.
    Influx,
}

/// A refusal or a failure, with all that its answer says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    kind: ProblemKind,
    code: String,
    detail: String,
    /// Seconds after which it makes sense to try again.
    retry_after: Option<u64>,
    /// A word in place of the status in the document, for clients that ask for the state of a job.
    state: Option<&'static str>,
    /// The field of the body, query or form that is wrong, if it is one.
    pointer: Option<FieldPointer>,
    /// The resources that conflict. Few problems have any, and all are passed around.
    conflicts: Option<Box<Conflicts>>,
}

/// The resources that a request conflicts with, in a box of the problem.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Conflicts(Vec<ConflictOut>);

/// Every kind of problem; one HTTP status each, except that service 1 says 400 for what is 422 elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// The request cannot be parsed.
    Malformed,
    /// A value breaks the schema or a rule.
    Invalid,
    /// No valid credential.
    Unauthenticated,
    /// The role does not allow it.
    Forbidden,
    /// It does not exist, or is another user's.
    NotFound,
    /// The path does not take this method.
    MethodNotAllowed,
    /// The state does not allow it.
    Conflict,
    /// The `Idempotency-Key` belongs to another request.
    KeyReused,
    /// `If-Match` names another version.
    PreconditionFailed,
    /// The body arrived too slowly.
    RequestTimeout,
    /// More bytes than allowed.
    TooLarge,
    /// The range lies outside the file.
    RangeNotSatisfiable,
    /// The bytes are of a type that is not read here.
    UnsupportedType,
    /// Too many requests.
    TooMany,
    /// Our fault.
    Internal,
    /// Not now.
    Unavailable,
    /// It took longer than is allowed.
    TimedOut,
}

impl ProblemKind {
    fn status(self, dialect: Dialect) -> StatusCode {
        match self {
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Invalid if dialect != Dialect::Problem => StatusCode::BAD_REQUEST,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Conflict => StatusCode::CONFLICT,
            Self::KeyReused => StatusCode::UNPROCESSABLE_ENTITY,
            Self::PreconditionFailed => StatusCode::PRECONDITION_FAILED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
            Self::UnsupportedType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

/// Detail of a problem with the gateway's disk.
pub(crate) const DISK_FULL: &str = "the gateway's disk is full: free some space and try again";

/// Detail of a plain request to the path of a WebSocket.
pub(crate) const NO_WEBSOCKET: &str = "This path is a WebSocket, and the request does not ask for one: connect with a client of WebSocket version 13.";

impl Problem {
    /// A problem of `kind` with its stable `code`.
    pub fn new(kind: ProblemKind, code: &str, detail: impl Into<String>) -> Self {
        Self {
            kind,
            code: code.to_owned(),
            detail: detail.into(),
            retry_after: None,
            state: None,
            pointer: None,
            conflicts: None,
        }
    }

    /// The request cannot be parsed.
    pub fn malformed(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Malformed, "malformed", detail)
    }

    /// A value breaks the schema or a rule.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Invalid, "invalid_field", detail)
    }

    /// The value of `field` breaks a rule; `fault` is the rest of the sentence after its name. A field within a field is
    /// written with a dot.
    pub fn field(field: &str, fault: impl Display) -> Self {
        Self::invalid(format!("{field} {fault}")).about(field)
    }

    /// Refuses another value than `present` in `field`, which a `what` keeps as long as it exists: ignored, a change would seem to be
    /// in force.
    pub fn unless_kept(field: &str, what: &str, present: &str, given: Option<&str>) -> Result<(), Self> {
        match given {
            Some(given) if given != present => {
                let fault = format!(
                    "stays as it is as long as the {what} exists: leave it out, or make another {what}"
                );
                Err(Self::field(field, fault))
            }
            _ => Ok(()),
        }
    }

    /// No valid credential.
    pub fn unauthenticated(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Unauthenticated, "unauthenticated", detail)
    }

    /// The role does not allow it.
    pub fn forbidden() -> Self {
        Self::new(ProblemKind::Forbidden, "forbidden", "insufficient permissions")
    }

    /// It is not the caller's to do, for a reason that helps to know.
    pub fn forbidden_because(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Forbidden, "forbidden", detail)
    }

    /// `what` does not exist, or is another user's.
    pub fn not_found(what: &str) -> Self {
        Self::new(ProblemKind::NotFound, "not_found", format!("{what} not found"))
    }

    /// `what` does not exist that stands at `place` of `list` in the request, a field as in [`Self::field`].
    pub fn not_found_in(what: &str, list: &str, place: usize) -> Self {
        let nth = place + 1;
        let detail = format!(
            "{what} not found: number {nth} of {list} does not exist. Take it out, or name another one."
        );
        let at: FieldPointer = [place.to_string()].into_iter().collect();
        Self::new(ProblemKind::NotFound, "not_found", detail).at(at.within(&FieldPointer::to(list)))
    }

    /// The same, with the state of the resource.
    pub fn in_state(self, state: &'static str) -> Self {
        Self { state: Some(state), ..self }
    }

    /// The state does not allow it.
    pub fn conflict(code: &str, detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::Conflict, code, detail)
    }

    /// The same, with the resources that it conflicts with.
    pub fn with_conflicts(self, conflicts: Vec<ConflictOut>) -> Self {
        Self { conflicts: Some(Box::new(Conflicts(conflicts))), ..self }
    }

    /// More bytes than allowed.
    pub fn too_large(detail: impl Into<String>) -> Self {
        Self::new(ProblemKind::TooLarge, "too_large", detail)
    }

    /// Too many requests; the next one may come in `seconds`.
    pub fn too_many(seconds: u64) -> Self {
        let mut problem = Self::new(ProblemKind::TooMany, "rate_limited", "too many requests: slow down");
        problem.retry_after = Some(seconds.max(1));
        problem
    }

    /// The same, with the seconds after which it makes sense to try again.
    pub fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after: Some(seconds.max(1)), ..self }
    }

    /// The same, about `field` of the request.
    pub fn about(self, field: &str) -> Self {
        self.at(FieldPointer::to(field))
    }

    /// The same, about the field that `pointer` leads to.
    pub fn at(self, pointer: FieldPointer) -> Self {
        Self { pointer: Some(pointer), ..self }
    }

    /// The same, for a request that has the object in question in its field `parent`.
    pub fn within(self, parent: &str) -> Self {
        let parent = FieldPointer::to(parent);
        Self { pointer: self.pointer.map(|pointer| pointer.within(&parent)), ..self }
    }

    /// The same, of one of several files of a form.
    pub fn of_file(self, name: &str) -> Self {
        Self { detail: format!("{name}: {}", self.detail), ..self }.about("files")
    }

    /// The resource has none of the versions that the request insists on.
    pub fn version_mismatch() -> Self {
        let detail = "The resource has changed since it was read: read it again and repeat the change.";
        Self::new(ProblemKind::PreconditionFailed, "version_mismatch", detail)
    }

    /// Why a file of the gateway cannot be written or read.
    pub fn file(error: &std::io::Error) -> Self {
        if !is_disk_full(error) {
            return Self::internal(error);
        }
        tracing::error!(%error, "the disk is full");
        Self::unavailable(DISK_FULL)
    }

    /// Not now.
    pub fn unavailable(detail: impl Into<String>) -> Self {
        let mut problem = Self::new(ProblemKind::Unavailable, "unavailable", detail);
        problem.retry_after = Some(1);
        problem
    }

    /// Our fault; `error` is logged, and not shown to the client.
    pub fn internal(error: &dyn std::fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(ProblemKind::Internal, "internal", "internal server error")
    }

    pub fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// The field that is wrong, if it is one.
    pub fn pointer(&self) -> Option<&FieldPointer> {
        self.pointer.as_ref()
    }

    /// A sentence for people.
    pub fn detail(&self) -> &str {
        &self.detail
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let kind = match rejection.kind {
            ErrorKind::Invalid => ProblemKind::Invalid,
            ErrorKind::NotFound => ProblemKind::NotFound,
            ErrorKind::Conflict => ProblemKind::Conflict,
            ErrorKind::PreconditionFailed => ProblemKind::PreconditionFailed,
            ErrorKind::Unavailable => return Self::unavailable(rejection.message),
        };
        Self { pointer: rejection.pointer, ..Self::new(kind, &rejection.code, rejection.message) }
    }
}

impl From<BusError> for Problem {
    fn from(error: BusError) -> Self {
        tracing::error!(%error, "NATS does not answer");
        Self::unavailable("NATS does not answer: try again in a moment.")
    }
}

impl From<UnknownWord> for Problem {
    fn from(error: UnknownWord) -> Self {
        tracing::error!(%error, "a row has a word of a newer version");
        Self::unavailable(
            "A newer version has written this resource, and the process that answers is older: try again in a moment.",
        )
    }
}

impl From<sqlx::Error> for Problem {
    fn from(error: sqlx::Error) -> Self {
        match error {
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => {
                tracing::error!(%error, "the database does not answer");
                Self::unavailable("The database does not answer: try again in a moment.")
            }
            // 57P01..57P03: the server shuts down or starts up.
            sqlx::Error::Database(ref cause) if cause.code().is_some_and(|code| code.starts_with("57P")) => {
                Self::unavailable("The database is restarting: try again in a moment.")
            }
            // 57014: a statement exceeded the limit of its class.
            sqlx::Error::Database(ref cause) if cause.code().is_some_and(|code| code == "57014") => {
                tracing::warn!(%error, "a statement for a request took too long");
                Self::unavailable(
                    "The database needed too long for this request: ask for less at once, or try again later.",
                )
            }
            error if signalbox_database::is_disk_full(&error) => {
                tracing::error!(%error, "the database's disk is full");
                Rejection::database_full().into()
            }
            // 40, 53, 55: conflicts, a lack of memory or connections, locks.
            sqlx::Error::Database(ref cause)
                if cause
                    .code()
                    .is_some_and(|code| ["40", "53", "55"].iter().any(|class| code.starts_with(class))) =>
            {
                tracing::error!(%error, "the database cannot serve a request now");
                Self::unavailable("The database is too busy: try again in a moment.")
            }
            other => Self::internal(&other),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.kind.status(Dialect::Service1).into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Whether a file could not be written for lack of space.
pub(crate) fn is_disk_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_are_of_named_fields_only() {
        let pointer = |problem: Problem| problem.pointer().map(|pointer| pointer.as_str().to_owned());
        let rejection = Rejection::field("retry.max_attempts", "must be between 1 and 10");
        assert_eq!(pointer(rejection.into()).as_deref(), Some("/retry/max_attempts"));
        assert_eq!(
            pointer(Problem::field("name", "is required").within("rule")).as_deref(),
            Some("/rule/name")
        );
        assert_eq!(pointer(Problem::invalid("name must not be empty").within("rule")), None);
    }

    #[test]
    fn a_full_disk_is_unavailable() {
        use std::io::{Error, ErrorKind};
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            assert_eq!(Problem::file(&Error::from(kind)).kind(), ProblemKind::Unavailable);
        }
        assert_eq!(Problem::file(&Error::from(ErrorKind::NotFound)).kind(), ProblemKind::Internal);
    }
}
