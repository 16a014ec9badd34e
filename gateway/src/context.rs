//! What a request brings along besides its body: an id, a trace, and the seed of the ids that it makes.

use std::{convert::Infallible, time::Instant};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, request::Parts},
    middleware::Next,
    response::Response,
};
use signalbox_domain::kernel::{Actor, Metadata};
use signalbox_metrics::metrics;
use signalbox_telemetry::{Kind, Span, current};
use uuid::Uuid;

use crate::{
    headers,
    problem::{is_service_1, render},
    state::AppState,
};

const REQUEST_ID: &str = "x-request-id";
/// Methods that are told of; clients may make up others.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
/// What orchestrators and Prometheus ask all the time.
const UNTRACED: [&str; 6] = ["/livez", "/readyz", "/health", "/api/health", "/api/v1/health", "/metrics"];

/// Names a request in answers and logs.
#[derive(Debug, Clone, Default)]
pub struct RequestId(pub String);

/// The seed of an idempotent request: equal for all its repetitions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seed(pub(crate) Uuid);

/// The part of a request that becomes metadata of its events.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    request_id: String,
    traceparent: Option<String>,
    /// Key of the resource that the request makes, if it makes one.
    pub(crate) resource: Uuid,
}

impl RequestContext {
    /// Metadata for the command of kind `purpose`; a repetition of the request has the same command id.
    pub(crate) fn metadata(&self, actor: Actor, purpose: &str) -> Metadata {
        Metadata {
            command_id: Uuid::new_v5(&self.resource, purpose.as_bytes()),
            actor,
            causation: None,
            correlation: self.request_id.clone(),
            traceparent: self.traceparent.clone(),
            restored_version: None,
        }
    }
}

impl FromRequestParts<AppState> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Infallible> {
        let request_id = parts.extensions.get::<RequestId>().cloned().unwrap_or_default().0;
        let resource = parts.extensions.get::<Seed>().map_or_else(|| state.clock.new_id(), |seed| seed.0);
        let traceparent = current().or_else(|| traceparent(&parts.headers).map(str::to_owned));
        Ok(Self { request_id, traceparent, resource })
    }
}

/// What every request and every answer has: an id (the client's, if it is a sane token, or a new one), a span, the shape of
/// errors, security headers.
pub(crate) async fn frame(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let given =
        request.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|id| is_sane(id));
    let id = given.map_or_else(|| state.clock.new_id().simple().to_string(), str::to_owned);
    request.extensions_mut().insert(RequestId(id.clone()));
    let service_1 = is_service_1(request.uri().path());
    let method = METHODS.into_iter().find(|known| *known == request.method()).unwrap_or("_OTHER");
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut span = span(method, route.as_ref(), &id, request.headers());
    let mut response = render(span.around(next.run(request)).await, service_1, &id);
    let status = response.status().as_u16();
    span.set("http.response.status_code", i64::from(status));
    if response.status().is_server_error() {
        span.fail(response.status().as_str());
    }
    // What matches no route is counted together: strangers may make up as many paths as they like.
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics().request(method, route, status, begun.elapsed());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    headers::secure(&mut response);
    response
}

/// The span of a request, which goes on with the client's trace. Of the address no more is told than the route: a path may be
/// anything, and a query may hold a token.
fn span(method: &'static str, route: Option<&MatchedPath>, id: &str, headers: &HeaderMap) -> Span {
    let route = route.map(MatchedPath::as_str);
    if route.is_some_and(|route| UNTRACED.contains(&route)) {
        return Span::default();
    }
    let mut span = Span::begin(Kind::Server, traceparent(headers), || match route {
        Some(route) => format!("{method} {route}"),
        None => method.to_owned(),
    });
    span.set("http.request.method", method);
    if let Some(route) = route {
        span.set_with("http.route", || route.to_owned());
    }
    span.set_with("signalbox.request.id", || id.to_owned());
    span
}

fn is_sane(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
}

/// `00-<32 hex>-<16 hex>-<2 hex>`, see the W3C's Trace Context.
fn traceparent(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    let hex = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    (hex && lengths == [2, 32, 16, 2]).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sane_request_ids_are_echoed() {
        assert!(is_sane("req-1.a:b_C"));
        for id in ["", "a b", "a\u{7f}", "ä", &"x".repeat(129)] {
            assert!(!is_sane(id), "{id:?}");
        }
    }

    #[test]
    fn only_well_formed_traces_are_carried() {
        let mut headers = HeaderMap::new();
        headers.insert(
            "traceparent",
            HeaderValue::from_static("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        );
        assert!(traceparent(&headers).is_some());
        headers.insert("traceparent", HeaderValue::from_static("00-xyz-1-01"));
        assert!(traceparent(&headers).is_none());
    }
}
