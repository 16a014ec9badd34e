use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use signalbox_database::on_behalf;

use crate::{
    auth::{Credential, CurrentUser, Reader, presented},
    client_address::ClientAddress,
    limits::Rate,
    policy::{Policy, RateClass},
    problem::{Problem, ProblemKind},
    shares::Full,
    state::Services,
};

const INGEST: &str = "ingest:";
const USER: &str = "user:";
/// Queries of all users at the same time; the pool of connections is smaller, so they wait there for little longer.
pub(crate) const READS: usize = 1024;

/// Limits the requests of each user, or of each network without a valid login. Agents are counted by their token, in
/// the extractor that knows it, senders of datapoints by their credential, generously; health is for everyone.
pub(crate) async fn limit(State(state): State<Services>, request: Request, next: Next) -> Response {
    let policy = Policy::of(request.extensions());
    if policy.rate == RateClass::Uncounted {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let is_ingest = policy.rate == RateClass::Ingest;
    let key = match presented(&parts).is_some() {
        true => match Reader::from_request_parts(&mut parts, &state).await {
            Ok(Reader(user)) => Some(if is_ingest { ingest_key(&user) } else { user_key(&user) }),
            Err(problem) if problem.kind() == ProblemKind::TooMany => return problem.into_response(),
            Err(_) => None,
        },
        false => None,
    };
    let key = match key {
        Some(key) => key,
        None => match ClientAddress::from_request_parts(&mut parts, &state).await {
            Ok(address) => format!("address:{}", address.network()),
            Err(problem) => return problem.into_response(),
        },
    };
    let limits = &state.config.limits;
    let rate = if is_ingest && key.starts_with(INGEST) {
        Rate { per_minute: limits.ingest_requests_per_minute, burst: limits.ingest_request_burst }
    } else {
        Rate { per_minute: limits.requests_per_minute, burst: limits.request_burst }
    };
    if let Err(seconds) = state.limiter.take(&key, rate, state.clock.now()) {
        return Problem::too_many(seconds).into_response();
    }
    if !policy.is_read {
        return next.run(Request::from_parts(parts, body)).await;
    }
    let share = match key.starts_with(USER) {
        true => match state.reads.take(&key).await {
            Ok(share) => Some(share),
            Err(Full::Own) => return Problem::too_many(1).into_response(),
            Err(Full::All) => {
                return Problem::unavailable("Too many queries are running: try again.").into_response();
            }
        },
        false => None,
    };
    // A client that hangs up ends its queries, and has its share back only when they have ended.
    on_behalf(share, next.run(Request::from_parts(parts, body))).await
}

/// Bucket of a user's requests.
pub(crate) fn user_key(user: &CurrentUser) -> String {
    format!("{USER}{}", user.id)
}

/// Bucket of the requests and messages of a credential that record datapoints.
pub(crate) fn ingest_key(user: &CurrentUser) -> String {
    match user.credential {
        Credential::Session(id) | Credential::ApiToken(id) => format!("{INGEST}{id}"),
    }
}
