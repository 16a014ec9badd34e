//! The context of a request besides its body: an id, a trace, and the seed of the ids that it creates.

use std::{convert::Infallible, sync::Arc, time::Instant};

use axum::{
    extract::{FromRequestParts, MatchedPath, Request, State},
    http::{HeaderMap, HeaderValue, request::Parts},
    middleware::Next,
    response::Response,
};
use chrono::{DateTime, Utc};
use signalbox_clock::Clock;
use signalbox_domain::kernel::{Actor, Metadata};
use signalbox_event_store::{LogFilter, LogOrder, search};
use signalbox_metrics::metrics;
use signalbox_telemetry::{Kind, Span, current};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::{
    auth::{AgentAuth, CurrentUser},
    headers,
    idempotency::{Keyed, Repetitions, RequestSecret, Seed},
    policy::Policy,
    problem::{Problem, render},
    services::replica::Database,
    state::Services,
};

const REQUEST_ID: &str = "x-request-id";
/// Methods with a label of their own; clients may invent others.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Names a request in answers and logs.
#[derive(Debug, Clone, Default)]
pub struct RequestId(pub String);

/// The id of a request that its client chose, and what the request is called in the log instead, if that must not be.
#[derive(Debug, Clone)]
struct GivenId {
    id: String,
    correlation: Arc<OnceCell<String>>,
}

impl GivenId {
    /// The correlation of the request's events: the client's, unless another principal's events or the system's have it. Those
    /// would show the request as something that they led to.
    async fn correlation(&self, actor: Option<Actor>, database: &Database, clock: &Clock) -> String {
        self.correlation.get_or_init(|| self.decide(actor, database, clock)).await.clone()
    }

    async fn decide(&self, actor: Option<Actor>, database: &Database, clock: &Clock) -> String {
        let filter = LogFilter { correlation: Some(self.id.clone()), ..LogFilter::default() };
        let first = search(&database.primary, &filter, LogOrder::OldestFirst, 1).await;
        let is_free = match first.as_deref() {
            Ok([]) => true,
            Ok([first, ..]) => actor.is_some_and(|actor| first.metadata["actor"] == actor.to_string()),
            Err(error) => {
                tracing::warn!(%error, "a given X-Request-ID could not be looked up in the log");
                false
            }
        };
        if is_free { self.id.clone() } else { clock.new_id().simple().to_string() }
    }
}

/// The principal of a request that an extractor has authenticated before.
fn actor(parts: &Parts) -> Option<Actor> {
    let user = parts.extensions.get::<CurrentUser>().map(CurrentUser::actor);
    user.or_else(|| parts.extensions.get::<AgentAuth>().map(AgentAuth::actor))
}

/// The part of a request that becomes metadata of its events.
#[derive(Debug, Clone)]
pub(crate) struct RequestContext {
    request_id: String,
    traceparent: Option<String>,
    /// Key of the resource that the request makes, if it makes one.
    pub(crate) resource: Uuid,
    /// Its `Idempotency-Key`, if it has one.
    pub(crate) keyed: Option<Keyed>,
}

impl RequestContext {
    /// The random secret from which the secrets follow that the answer shows.
    pub(crate) async fn secret(&self, repetitions: &Repetitions) -> Result<RequestSecret, Problem> {
        RequestSecret::of(self.keyed.as_ref(), repetitions, self.resource).await
    }

    /// When a request with an `Idempotency-Key` came for the first time, so that its repetitions stamp the same.
    pub(crate) fn first_seen(&self) -> Option<DateTime<Utc>> {
        self.keyed.as_ref()?;
        let (seconds, nanoseconds) = self.resource.get_timestamp()?.to_unix();
        DateTime::from_timestamp(i64::try_from(seconds).ok()?, nanoseconds)
    }

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

impl FromRequestParts<Services> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &Services) -> Result<Self, Infallible> {
        let request_id = match parts.extensions.get::<GivenId>().cloned() {
            Some(given) => given.correlation(actor(parts), &state.database, &state.clock).await,
            None => parts.extensions.get::<RequestId>().cloned().unwrap_or_default().0,
        };
        let resource = parts.extensions.get::<Seed>().map_or_else(|| state.clock.new_id(), |seed| seed.0);
        let traceparent = current().or_else(|| traceparent(&parts.headers).map(str::to_owned));
        let keyed = parts.extensions.get::<Keyed>().cloned();
        Ok(Self { request_id, traceparent, resource, keyed })
    }
}

/// Gives every request and every answer an id (the client's, if it is a sane token and does not name another cause in
/// the log, or a new one), a span, the shape of errors, and security headers.
pub(crate) async fn frame(State(clock): State<Clock>, mut request: Request, next: Next) -> Response {
    let given =
        request.headers().get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|id| is_sane(id));
    let given = given.map(|id| GivenId { id: id.to_owned(), correlation: Arc::default() });
    let id = given.as_ref().map_or_else(|| clock.new_id().simple().to_string(), |given| given.id.clone());
    request.extensions_mut().insert(RequestId(id.clone()));
    if let Some(given) = given.clone() {
        request.extensions_mut().insert(given);
    }
    let policy = Policy::of(request.extensions());
    let method = METHODS.into_iter().find(|known| *known == request.method()).unwrap_or("_OTHER");
    let begun = Instant::now();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut span = match policy.is_traced {
        true => span(method, route.as_ref(), &id, request.headers()),
        false => Span::default(),
    };
    let response = span.around(next.run(request)).await;
    let other = given.as_ref().and_then(|given| given.correlation.get()).filter(|used| **used != id).cloned();
    if let Some(other) = &other {
        span.set_with("signalbox.request.id", || other.clone());
    }
    let id = other.unwrap_or(id);
    let mut response = render(response, policy.dialect, &id);
    let status = response.status().as_u16();
    span.set("http.response.status_code", i64::from(status));
    if response.status().is_server_error() {
        span.fail(response.status().as_str());
    }
    // Requests without a route are counted together, because clients may invent any number of paths.
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    metrics().request(method, route, status, begun.elapsed());
    if let Ok(value) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    headers::secure(&mut response);
    response
}

/// The span of a request, which continues the client's trace. Of the address it contains only the route: a path may
/// hold anything, and a query may hold a token.
fn span(method: &'static str, route: Option<&MatchedPath>, id: &str, headers: &HeaderMap) -> Span {
    let route = route.map(MatchedPath::as_str);
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
