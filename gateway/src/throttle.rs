use axum::{
    extract::{FromRequestParts, Request, State},
    http::{Method, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    auth::{Credential, Reader, Who, presented},
    client_address::ClientAddress,
    limits::Rate,
    problem::Problem,
    state::AppState,
};

const INGEST: &str = "ingest:";

/// Limits the requests of each user, or of each address without a valid login. Agents are counted by their token, in
/// the extractor that knows it, senders of datapoints by their credential, generously; health is for everyone.
pub(crate) async fn limit(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let exempt = [
        "/health",
        "/livez",
        "/readyz",
        "/api/health",
        "/api/v1/health",
        "/api/agent/",
        "/api/files/",
        "/ws/",
    ];
    if exempt.iter().any(|prefix| path.starts_with(prefix)) {
        return next.run(request).await;
    }
    let (mut parts, body) = request.into_parts();
    let is_ingest = request_is_ingest(&parts);
    let key = match presented(&parts).is_some() {
        true => Reader::from_request_parts(&mut parts, &state)
            .await
            .ok()
            .map(|Reader(who)| if is_ingest { credential_key(&who) } else { format!("user:{}", who.user) }),
        false => None,
    };
    let key = match key {
        Some(key) => key,
        None => match ClientAddress::from_request_parts(&mut parts, &state).await {
            Ok(address) => format!("address:{}", address.0),
            Err(problem) => return problem.into_response(),
        },
    };
    let limits = &state.config.limits;
    let rate = if is_ingest && key.starts_with(INGEST) {
        Rate { per_minute: limits.ingest_requests_per_minute, burst: limits.ingest_request_burst }
    } else {
        Rate { per_minute: limits.requests_per_minute, burst: limits.request_burst }
    };
    match state.limiter.take(&key, rate, state.clock.now()) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(seconds) => Problem::too_many(seconds).into_response(),
    }
}

fn request_is_ingest(parts: &Parts) -> bool {
    parts.method == Method::POST
        && matches!(parts.uri.path(), "/api/v1/datapoints" | "/api/v1/datapoints/batch")
}

fn credential_key(who: &Who) -> String {
    match who.credential {
        Credential::Session(id) | Credential::ApiToken(id) => format!("{INGEST}{id}"),
    }
}
