//! Bodies of requests: a limit for how slowly they may arrive, and the draining of unread ones.
//!
//! A client that is refused before it has sent its whole body must still get the answer. The answer is sent at once
//! while the connection keeps reading; closing instead would make the kernel reset the connection, and most clients
//! then lose an answer that they had received already.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::{IntoResponse, Response},
};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use super::{Connection, Connections, Drain, Pace, Running};
use crate::http::{
    network::client,
    problem::{Problem, ProblemKind},
};

/// Limit of the bytes that are read of a refused body.
const DRAIN_BYTES: u64 = 64 << 20;
const DRAIN_TIME: Duration = Duration::from_secs(30);
/// How long a body may be slower than it must be on average, before it is cut off.
const GRACE: Duration = Duration::from_secs(30);

/// The rest of a body that the handler did not read.
#[derive(Debug)]
pub(super) struct Leftover {
    body: Body,
    running: Running,
    client: IpAddr,
}

/// A body that is bounded in time, and that leaves its rest to the connection.
struct TimedBody {
    connection: Connection,
    /// Behind a proxy not the connection's peer.
    client: IpAddr,
    /// None once it has ended or failed.
    inner: Option<Body>,
    /// Whether the client waits for `100 Continue`, which the first read sends.
    is_awaited: bool,
    late: Arc<AtomicBool>,
    received: u64,
    /// Time that was spent waiting for the client.
    waited: Duration,
    wait: Option<Wait>,
}

/// A wait for the client.
struct Wait {
    since: Instant,
    end: Pin<Box<Sleep>>,
}

/// Bounds the body of `request` in time, and lets a refusal reach a client that is still sending.
pub(crate) async fn limit_body(
    State(connections): State<Arc<Connections>>,
    request: Request,
    next: Next,
) -> Response {
    let connection = request.extensions().get::<Connection>().cloned();
    let Some(connection) = connection.filter(|_| !request.body().is_end_stream()) else {
        return next.run(request).await;
    };
    connection.begin_body();
    let client = client(connection.peer(), request.headers(), &connections.trusted);
    let late = Arc::new(AtomicBool::new(false));
    let expect = request.headers().get(header::EXPECT);
    let is_awaited = expect.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
    let request = request.map(|body| {
        Body::new(TimedBody {
            connection,
            client,
            inner: Some(body),
            is_awaited,
            late: Arc::clone(&late),
            received: 0,
            waited: Duration::ZERO,
            wait: None,
        })
    });
    let response = next.run(request).await;
    if late.load(Ordering::Relaxed) && !response.status().is_success() {
        let detail = "the body arrived too slowly: send it again over a faster connection";
        return Problem::new(ProblemKind::RequestTimeout, "request_timeout", detail).into_response();
    }
    response
}

impl Pace {
    /// The same, but `rate` bytes a second are demanded of a body if that is more.
    fn at_least(self, rate: u32) -> Self {
        Self { least_rate: self.least_rate.max(rate), ..self }
    }

    /// How long a client may leave a body without a byte, when it has sent `received` in `waited` so far. An agent's upload
    /// may be slow for as long as it moves.
    fn time_left(&self, is_agent: bool, received: u64, waited: Duration) -> Duration {
        if is_agent || self.least_rate == 0 {
            return self.stall;
        }
        let earned = Duration::from_secs(received / u64::from(self.least_rate));
        self.stall.min((GRACE + earned).saturating_sub(waited))
    }
}

impl TimedBody {
    /// How long the wait for the next bytes may last.
    fn time_left(&self) -> Duration {
        // The credential of an agent is checked before its body is read.
        let shared = &self.connection.0;
        let required = shared.required_rate.load(Ordering::Relaxed);
        let pace = shared.pace.at_least(required);
        pace.time_left(self.connection.serves_agent(), self.received, self.waited)
    }
}

impl hyper::body::Body for TimedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        this.is_awaited = false;
        let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
        let Poll::Ready(frame) = Pin::new(inner).poll_frame(context) else {
            let now = Instant::now();
            let deadline = now + this.time_left();
            let wait =
                this.wait.get_or_insert_with(|| Wait { since: now, end: Box::pin(sleep_until(deadline)) });
            ready!(wait.end.as_mut().poll(context));
            // A body that has been cut off is not worth reading on: the connection closes.
            this.inner = None;
            this.late.store(true, Ordering::Relaxed);
            this.connection.linger();
            let late = io::Error::new(io::ErrorKind::TimedOut, "the body arrives too slowly");
            return Poll::Ready(Some(Err(axum::Error::new(late))));
        };
        if let Some(wait) = this.wait.take() {
            this.waited += wait.since.elapsed();
        }
        match &frame {
            Some(Ok(frame)) => this.received += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) | None => this.inner = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        let Some(body) = self.inner.take().filter(|body| !body.is_end_stream()) else { return };
        let shared = &self.connection.0;
        // A client that waits for leave to send sends nothing now.
        let leftover = || Leftover { body, running: shared.keep_busy(), client: self.client };
        let is_left = !self.is_awaited && shared.leftovers.try_send(leftover()).is_ok();
        if !is_left {
            self.connection.linger();
        }
    }
}

impl Leftover {
    /// The client that sends it.
    pub(super) fn client(&self) -> IpAddr {
        self.client
    }

    /// Reads the rest and throws it away, within limits, as one of the `drain`s of its client; `None` if that has too many.
    pub(super) async fn discard(self, drain: Option<Drain>) {
        let Self { body, running, .. } = self;
        let is_read = match drain {
            Some(_) => timeout(DRAIN_TIME, read_to_end(body)).await.unwrap_or(false),
            None => false,
        };
        if !is_read {
            running.0.lingers.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether `body` ended within its limit.
async fn read_to_end(mut body: Body) -> bool {
    let mut left = DRAIN_BYTES;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(rest) = left.checked_sub(bytes) else { return false };
        left = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_body_must_keep_its_average_rate_unless_an_agent_sends_it() {
        let pace = Pace { header: seconds(15), idle: seconds(75), stall: seconds(60), least_rate: 500 };
        assert_eq!(pace.time_left(false, 0, Duration::ZERO), GRACE);
        assert_eq!(pace.time_left(false, 0, seconds(20)), seconds(10));
        assert_eq!(pace.time_left(false, 5_000, seconds(38)), seconds(2));
        assert_eq!(pace.time_left(false, 5_000, seconds(41)), Duration::ZERO);
        assert_eq!(pace.time_left(false, 50_000, seconds(40)), pace.stall);
        assert_eq!(pace.time_left(true, 10, seconds(100_000)), pace.stall);
    }

    #[test]
    fn a_route_may_demand_more_of_a_body() {
        let pace = Pace { header: seconds(15), idle: seconds(75), stall: seconds(60), least_rate: 500 };
        let demanding = pace.at_least(4_000);
        // 2 kB/s for a minute.
        assert_eq!(demanding.time_left(false, 120_000, seconds(61)), Duration::ZERO);
        assert_eq!(demanding.time_left(false, 200_000, seconds(50)), seconds(30));
        assert!(pace.time_left(false, 120_000, seconds(61)) > Duration::ZERO);
        assert_eq!(demanding.at_least(0).least_rate, 4_000);
    }
}
