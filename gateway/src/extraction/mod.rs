//! Documents become text while the caller waits. Longer work is a job.

mod documents;
mod extract;
mod formats;
mod jobs;
mod options;
mod pages;
mod quota;
mod receive;
mod searchable;
pub(crate) mod services;
mod submit;
mod upload;

use axum::{
    extract::{FromRequestParts, Request},
    http::{header, request::Parts},
};
use signalbox_clock::Clock;
use signalbox_config::Config;
use signalbox_documents::{Documents, Failure, FairPlaces, Options, Place, Share, Sizes};
use signalbox_texts::CacheKey;
use tokio::time::timeout;
use utoipa_axum::routes;

use crate::{
    auth::{CurrentUser, Reader, presented},
    client_address::ClientAddress,
    connections::Connection,
    limits::Rate,
    network::{Network, is_proxied},
    policy::Policy,
    problem::{Problem, ProblemKind},
    routes::Routes,
    services::limits::Limiter,
    state::Services,
};

/// Limits that the description of the interface shows.
pub(crate) mod limits {
    pub(crate) use super::{receive::BATCH, submit::MAX_SECRET};
}

/// Files that are received at the same time; each may lie on disk.
const UPLOADS: Sizes = Sizes { places: 64, anonymous_each: 8, anonymous: 48 };
/// Bytes a second that a document must arrive with, on average: it holds a place meanwhile.
const LEAST_RATE: u32 = 4_000;

/// Limit of texts being cached at the same time; others wait.
pub(crate) const REMEMBERING: usize = 4;

/// The routes of extraction. The answer of a quick call follows from its body alone: it is the same twice without being
/// remembered. A job is recognised by its handler.
pub(crate) fn routes() -> Routes {
    const OPEN: Policy = Policy::PROBLEMS.open();
    const FORM: Policy = OPEN.repeated_by_handler();
    Routes::new(OPEN)
        .with(FORM, routes!(extract::extract))
        .with(FORM, routes!(extract::raw))
        .with(FORM, routes!(extract::document))
        .with(FORM, routes!(searchable::searchable_pdf))
        .routes(routes!(formats::formats))
        .with(FORM, routes!(submit::submit))
        .routes(routes!(jobs::list))
        .with(FORM, routes!(submit::submit_document))
        .with(FORM, routes!(submit::submit_batch))
        .routes(routes!(jobs::stats))
        .routes(routes!(jobs::get, jobs::cancel))
        .routes(routes!(jobs::retry))
        .routes(routes!(jobs::result))
        .routes(routes!(pages::page))
        .routes(routes!(documents::list))
        .routes(routes!(documents::delete))
}

/// A caller of extraction: anyone, unless anonymous access is closed. A presented credential has to be valid, and
/// replaces the limit for anonymous callers.
pub(crate) struct Caller {
    pub(crate) user: Option<CurrentUser>,
    /// Where a stranger sends from.
    stranger: Option<Network>,
}

/// A caller who may query jobs; the general rate limits suffice for that.
pub(crate) struct Visitor(pub(crate) Option<CurrentUser>);

impl FromRequestParts<Services> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        if presented(parts).is_some() || state.config.extraction.require_auth {
            let Reader(user) = Reader::from_request_parts(parts, state).await?;
            return Ok(Self(Some(user)));
        }
        Ok(Self(None))
    }
}

impl FromRequestParts<Services> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Problem> {
        let Visitor(user) = Visitor::from_request_parts(parts, state).await?;
        if let (None, Some(documents)) = (&user, &state.documents) {
            documents.check_anonymous()?;
        }
        let address = ClientAddress::from_request_parts(parts, state).await?;
        let caller = Self { stranger: user.is_none().then_some(address.network()), user };
        caller.count(&state.config, &state.clock, &state.limiter, 1)?;
        Ok(caller)
    }
}

/// The places of all files that are being received.
pub(crate) fn upload_places() -> FairPlaces {
    FairPlaces::new(UPLOADS)
}

/// A place to receive a file of `share`, for which it waits as long as a document waits for a parser.
pub(crate) async fn upload_place(
    config: &Config,
    uploads: &FairPlaces,
    share: &Share,
) -> Result<Place, Problem> {
    let full = || Problem::unavailable("Too many files are being received: try again in a moment.");
    timeout(config.extraction.queue_timeout(), uploads.take(share))
        .await
        .map_err(|_| full())?
        .map_err(|_| full())
}

impl Caller {
    /// The principal that a document of this caller counts against.
    pub(crate) fn share(&self) -> Share {
        match (&self.user, self.stranger) {
            (None, Some(network)) => Share::anonymous(network),
            (Some(user), _) => Share::user(user.id),
            (None, None) => Share::operator(),
        }
    }

    /// Identifies the text of a document for this caller, and work on it that is under way.
    fn cache_key(&self, sha256: &str, filename: &str, options: &Options) -> Result<CacheKey, Problem> {
        let owner = self.user.as_ref().map(|user| user.id.0);
        CacheKey::new(owner, sha256, filename, options).map_err(|error| Problem::internal(&error))
    }

    /// Whether a callback of `request` may not go to this machine itself: without a login only a caller that is on this
    /// machine too may name it, if no other machine can reach the server, and no page in a browser on it.
    fn must_not_reach_loopback(&self, config: &Config, request: &Request) -> bool {
        let server = &config.server;
        let mut listeners = [Some(server.address), server.metrics_address].into_iter().flatten();
        let is_alone = listeners.all(|listener| listener.ip().is_loopback());
        let is_here = request.extensions().get::<Connection>().is_some_and(|connection| {
            let peer = connection.peer();
            peer.is_loopback() && !is_proxied(peer, request.headers(), &server.trusted_proxies)
        });
        self.user.is_none() && (!is_alone || !is_here || request.headers().contains_key(header::ORIGIN))
    }

    /// A place to receive the documents of `request`, which must not arrive too slowly.
    fn begin_upload<'a>(
        &self,
        config: &'a Config,
        uploads: &'a FairPlaces,
        request: &Request,
    ) -> impl Future<Output = Result<Place, Problem>> + use<'a> {
        let share = self.share();
        let connection = request.extensions().get::<Connection>().cloned();
        async move {
            let place = upload_place(config, uploads, &share).await?;
            if let Some(connection) = connection {
                connection.require_rate(LEAST_RATE);
            }
            Ok(place)
        }
    }

    /// Counts documents that a stranger sends.
    fn count(
        &self,
        config: &Config,
        clock: &Clock,
        limiter: &Limiter,
        documents: usize,
    ) -> Result<(), Problem> {
        let Some(address) = self.stranger else { return Ok(()) };
        let per_minute = config.limits.anonymous_extractions_per_minute;
        let rate = Rate { per_minute, burst: per_minute };
        let key = format!("extraction:{address}");
        (0..documents).try_for_each(|_| limiter.take(&key, rate, clock.now())).map_err(Problem::too_many)
    }
}

/// The document parsers, if they work here.
fn sandbox(documents: &Option<Documents>) -> Result<&Documents, Problem> {
    documents.as_ref().ok_or_else(|| {
        Problem::unavailable("Documents cannot be read on this machine: the log of the service says why.")
    })
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let field = match &failure {
            Failure::WrongEngine { .. } => Some("extraction_engine"),
            Failure::Language { .. } => Some("language"),
            _ => None,
        };
        let kind = match &failure {
            Failure::Empty => ProblemKind::Malformed,
            Failure::Unsupported { .. } | Failure::NoPages { .. } => ProblemKind::UnsupportedType,
            Failure::Unavailable { .. } => return Self::unavailable(failure.to_string()),
            Failure::Timeout { .. } => ProblemKind::TimedOut,
            Failure::WrongEngine { .. }
            | Failure::Language { .. }
            | Failure::Corrupt { .. }
            | Failure::Encrypted
            | Failure::TooMuch { .. }
            | Failure::Crash => ProblemKind::Invalid,
        };
        let problem = Self::new(kind, failure.code(), failure.to_string());
        field.into_iter().fold(problem, Self::about)
    }
}
