use axum::{
    extract::{FromRequestParts, Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};

use crate::{
    auth::{Reader, presented},
    client_address::ClientAddress,
    limits::Rate,
    problem::Problem,
    state::AppState,
};

/// Limits the requests of each user, or of each address without a valid login. Agents are counted by their token, in
/// the extractor that knows it; health is for everyone.
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
    let key = match presented(&parts).is_some() {
        true => Reader::from_request_parts(&mut parts, &state)
            .await
            .ok()
            .map(|Reader(who)| format!("user:{}", who.user)),
        false => None,
    };
    let key = match key {
        Some(key) => key,
        None => match ClientAddress::from_request_parts(&mut parts, &state).await {
            Ok(address) => format!("address:{}", address.0),
            Err(problem) => return problem.into_response(),
        },
    };
    let rate = Rate {
        per_minute: state.config.limits.requests_per_minute,
        burst: state.config.limits.request_burst,
    };
    match state.limiter.take(&key, rate, state.clock.now()) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(seconds) => Problem::too_many(seconds).into_response(),
    }
}
