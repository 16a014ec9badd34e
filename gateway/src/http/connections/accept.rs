//! Accepts connections and serves HTTP/1.1 on them until the process stops.

use std::{
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{Request, Response},
};
use futures::{StreamExt, stream::FuturesUnordered};
use hyper::{
    body::{Frame, Incoming, SizeHint},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::{SockRef, TcpKeepalive};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

use super::{Connection, Connections, Place, Running, Shared, body::Leftover, socket::Socket};

/// Largest head of a request.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How long to wait for a file to be closed when too many are open.
const NO_FILES: Duration = Duration::from_millis(50);
/// Silence after which the kernel checks that the peer is still there, and how often it does so before it gives up.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// The answer to a connection for which there is no place.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Serves `service` on every connection to `listener` until `stop`, then until their requests have ended, but for at most
/// `drain`.
pub(crate) async fn accept<S>(
    listener: TcpListener,
    service: S,
    connections: Arc<Connections>,
    stop: CancellationToken,
    drain: Duration,
) where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    // Aborts what is left when it is dropped.
    let mut served = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = served.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                prepare(&stream);
                let (stream, (sender, leftovers)) = (Arc::new(stream), mpsc::channel(1));
                match connections.admit(&stream, peer, sender) {
                    Some(place) => {
                        served.spawn(serve(stream, place, leftovers, service.clone(), stop.clone()));
                    }
                    // It fits into the buffer of a new socket; a client that does not read it sees the connection closed.
                    None => drop(stream.try_write(REFUSAL)),
                }
            }
            Err(error) if is_of_peer(&error) => {}
            Err(error) => {
                tracing::error!(%error, "a connection cannot be accepted");
                connections.displace();
                sleep(NO_FILES).await;
            }
        }
    }
    drop(listener);
    let ended = async { while served.join_next().await.is_some() {} };
    // Connections that have not ended by then are aborted.
    let _ = timeout(drain, ended).await;
}

/// Whether the error is about one connection that ended before it was accepted.
fn is_of_peer(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

fn prepare(stream: &TcpStream) {
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE_EVERY)
        .with_retries(KEEPALIVE_PROBES);
    let socket = SockRef::from(stream);
    // A socket that has been closed meanwhile is found out by the first read.
    let _ = socket.set_tcp_keepalive(&keepalive).and(stream.set_nodelay(true));
}

async fn serve<S>(
    stream: Arc<TcpStream>,
    place: Place,
    mut leftovers: mpsc::Receiver<Leftover>,
    service: S,
    stop: CancellationToken,
) where
    S: Service<Request<Body>, Response = Response<Body>> + Clone + Send + 'static,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    S::Future: Send,
{
    let (shared, connections) = (Arc::clone(&place.shared), Arc::clone(&place.connections));
    let answering = Arc::clone(&shared);
    let service = service_fn(move |request: Request<Incoming>| {
        let running = answering.begin();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Connection(Arc::clone(&answering)));
        let answer = service.clone().oneshot(request);
        async move {
            let response = answer.await?;
            Ok::<_, S::Error>(response.map(|body| Answer { body, _running: running }))
        }
    });
    let mut http = http1::Builder::new();
    // `overdue` bounds the time for a header, from the acceptance on.
    http.timer(TokioTimer::new()).header_read_timeout(None).max_header_size(MAX_HEAD_BYTES);
    let io = TokioIo::new(Socket::new(stream, place));
    let mut http = pin!(http.serve_connection(io, service).with_upgrades());
    let mut overdue = pin!(overdue(&shared));
    let mut discarding = FuturesUnordered::new();
    let mut is_stopping = false;
    loop {
        tokio::select! {
            ended = &mut http => {
                match ended {
                    Ok(()) => shared.keep_upgraded(),
                    Err(error) => tracing::debug!(%error, "a connection ended early"),
                }
                return;
            }
            () = &mut overdue => return,
            () = shared.end.cancelled() => return,
            () = stop.cancelled(), if !is_stopping => {
                is_stopping = true;
                http.as_mut().graceful_shutdown();
            }
            Some(leftover) = leftovers.recv() => {
                let drain = connections.begin_drain(leftover.client());
                discarding.push(leftover.discard(drain));
            }
            Some(()) = discarding.next() => {}
        }
    }
}

/// Ends when the connection waits for a request for longer than it may.
async fn overdue(shared: &Shared) {
    loop {
        let now = Instant::now();
        match shared.deadline() {
            Some(deadline) if deadline <= now => return,
            // The first byte of a header brings the deadline forward, and nothing wakes this wait then.
            Some(deadline) => sleep_until(deadline.min(now + shared.pace.header)).await,
            // The wait starts when the running request ends.
            None => sleep(shared.pace.header.min(shared.pace.idle)).await,
        }
    }
}

/// The body of an answer; the request is under way until it has been handed over.
struct Answer {
    body: Body,
    _running: Running,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_kernel_checks_that_a_silent_peer_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && stream.nodelay().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), KEEPALIVE);
        assert_eq!(socket.tcp_keepalive_interval().unwrap(), KEEPALIVE_EVERY);
        assert_eq!(socket.tcp_keepalive_retries().unwrap(), KEEPALIVE_PROBES);
        drop(client);
    }
}
