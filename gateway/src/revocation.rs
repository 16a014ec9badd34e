//! Bodies of users' requests and answers end when their credential is revoked or has expired, or when the role of the user no
//! longer suffices, within a second, as their sockets do. A request whose body was cut is refused for that reason. Commands are
//! not cut: only bodies that are still on their way.

use std::{
    io,
    pin::Pin,
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::{sync::oneshot, task::JoinSet, time::sleep};

use crate::{
    auth::{ApiTokens, RequiredRole, presented},
    connections::{Connection, Exchange},
    open_sockets::DEMOTED,
    open_sockets::OpenSockets,
    problem::Problem,
};

/// A request body that has arrived within this time is not watched: most do.
const AT_ONCE: Duration = Duration::from_millis(100);

/// How long a client that reads has for the end of its answer before the connection is closed.
pub(crate) const PARTING: Duration = Duration::from_millis(100);

/// A user's credential, for as long as bodies of its request move.
#[derive(Clone)]
struct Watch {
    open_sockets: OpenSockets,
    token: String,
    /// Known once the handler has begun, which is before it reads the body.
    required: RequiredRole,
    /// Why a body was cut, if one was.
    cut_because: Arc<OnceLock<&'static str>>,
}

/// Watches the credential of a user's request while its bodies move.
pub(crate) async fn cut_bodies(
    State(open_sockets): State<OpenSockets>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    // Tokens of agents are watched where their bodies are moved.
    let is_users = |token: &str| token.contains('.') || ApiTokens::looks_like_one(token);
    let token = presented(&parts).filter(|token| is_users(token)).map(|token| token.into_owned());
    let Some(token) = token else { return next.run(Request::from_parts(parts, body)).await };
    let exchange = parts.extensions.get::<Connection>().map(Connection::exchange);
    let watch = Watch { open_sockets, token, required: RequiredRole::default(), cut_because: Arc::default() };
    parts.extensions.insert(watch.required.clone());
    let body = if body.size_hint().exact() == Some(0) { body } else { watch.over(body) };
    let response = next.run(Request::from_parts(parts, body)).await;
    if let Some(problem) = watch.problem().filter(|_| !response.status().is_success()) {
        return problem.into_response();
    }
    // Followers of the log end their streams themselves, so that a client takes the end for one.
    let is_events = response
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    response.map(|body| match body.size_hint().exact() {
        None if !is_events => watch.over_answer(body, exchange),
        // A body with a length is in memory already.
        _ => body,
    })
}

impl Watch {
    fn over(&self, body: Body) -> Body {
        let watch = self.clone();
        let void = async move {
            sleep(AT_ONCE).await;
            watch.void().await
        };
        Body::from_stream(cut(pieces(body), void))
    }

    fn over_answer(&self, body: Body, exchange: Option<Exchange>) -> Body {
        Body::from_stream(cut_answer(pieces(body), self.clone().void(), exchange))
    }

    /// Waits until the credential is void.
    async fn void(self) -> &'static str {
        let open = self.open_sockets.watch(self.token, self.required.get());
        let reason = open.void().await;
        self.cut_because.get_or_init(|| reason);
        "the credential was revoked, has expired or no longer allows this"
    }

    /// The refusal of a request whose body was cut.
    fn problem(&self) -> Option<Problem> {
        let reason = *self.cut_because.get()?;
        Some(if reason == DEMOTED { Problem::forbidden() } else { Problem::unauthenticated(reason) })
    }
}

/// Closes the connection of `exchange`, whose answer has ended, after a client that reads has seen the end.
pub(crate) async fn end_unread(exchange: Option<Exchange>) {
    if let Some(exchange) = exchange {
        sleep(PARTING).await;
        exchange.end();
    }
}

fn pieces(body: Body) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    body.into_data_stream().map(|piece| piece.map_err(io::Error::other))
}

/// The same for the body of an answer, which nothing polls while the client reads nothing: `stop` is awaited beside it, and
/// closes the connection of `exchange`.
pub(crate) fn cut_answer(
    bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    stop: impl Future<Output = &'static str> + Send + 'static,
    exchange: Option<Exchange>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let (stopping, stopped) = oneshot::channel();
    // Ends with the body.
    let mut watching = JoinSet::new();
    watching.spawn(async move {
        // Fails only when the body has just ended.
        let _ = stopping.send(stop.await);
        end_unread(exchange).await;
    });
    cut(bytes, async move {
        let _watching = watching;
        stopped.await.unwrap_or("the credential is no longer watched")
    })
}

/// `bytes` until `stop` gives a reason. Then they end with an error, so that a body of unknown length does not look whole.
pub(crate) fn cut(
    bytes: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    stop: impl Future<Output = &'static str> + Send + 'static,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    let stop: Pin<Box<dyn Future<Output = &'static str> + Send>> = Box::pin(stop);
    stream::unfold(Some((stop, Box::pin(bytes))), async |running| {
        let (mut stop, mut bytes) = running?;
        tokio::select! {
            biased;
            reason = &mut stop => Some((Err(io::Error::other(reason)), None)),
            piece = bytes.next() => piece.map(|piece| (piece, Some((stop, bytes)))),
        }
    })
}
