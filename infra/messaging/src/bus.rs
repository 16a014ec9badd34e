use signalbox_boxed::boxed;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_nats::{Client, ConnectOptions, Event, ServerAddr, jetstream};
use percent_encoding::percent_decode_str;
use tokio::{
    sync::{OnceCell, broadcast, watch},
    time::timeout,
};

use crate::{
    Wakeup,
    streams::{Stuck, Unstored},
};

/// Oldest supported server; older ones silently ignore stream settings.
const MIN_SERVER: (i64, i64, i64) = (2, 11, 0);

/// Interval of pings: a server that does not answer two of them is left for another.
const PING: Duration = Duration::from_secs(2);

/// Timeout of the client's background tasks: reporting a connection, flushing buffers.
const SETTLE: Duration = Duration::from_secs(2);

/// Why the bus cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// The address does not parse.
    #[error(
        "NATS_URL is not a NATS address; it looks like nats://user:password@host:4222, several are separated by commas"
    )]
    Address,
    /// No connection.
    #[error("NATS cannot be reached: {0}; check that nats-server runs and that NATS_URL is right")]
    Connect(#[source] async_nats::ConnectError),
    /// Too old.
    #[error("nats-server {0} is too old: Signalbox needs version 2.11 or newer")]
    TooOld(String),
    /// JetStream refused or did not answer.
    #[error("JetStream: {0}")]
    Stream(String),
    /// The message did not reach the server.
    #[error("the message could not be published: {0}")]
    Publish(String),
}

/// The connection to NATS. Clones share it; it reconnects by itself.
#[derive(Debug, Clone)]
pub struct Bus {
    pub(crate) client: Client,
    pub(crate) jetstream: jetstream::Context,
    /// Servers that keep a copy of each stream.
    pub(crate) replicas: usize,
    connections: watch::Receiver<u64>,
    /// Whether the process ends, and may lose its connection.
    expects_disconnect: Arc<AtomicBool>,
    /// Streams that do not store published messages.
    pub(crate) stuck: Arc<Mutex<HashMap<String, Stuck>>>,
    /// Messages that were published and not stored; `None` since one was.
    pub(crate) unstored: Arc<Mutex<Option<Unstored>>>,
    /// When a handler answered a command of this process last.
    pub(crate) answered: Arc<Mutex<Option<Instant>>>,
    /// Names this process among those that wake each other.
    pub(crate) name: Arc<str>,
    /// All wakeups, for all listeners of this process; started by the first one.
    pub(crate) wakeups: Arc<OnceCell<broadcast::Sender<Wakeup>>>,
}

impl Bus {
    /// Connects to `url`, which may name several servers of a cluster, separated by commas, and checks the server's
    /// version. While a server is away, the client uses another one.
    ///
    /// # Errors
    /// [`BusError`] distinguishes faults of the address, the connection and the version.
    #[boxed]
    pub async fn connect(url: &str) -> Result<Self, BusError> {
        let addresses = url.split(',').map(|address| address.trim().parse::<ServerAddr>());
        let addresses = addresses.collect::<Result<Vec<_>, _>>().map_err(|_| BusError::Address)?;
        let first = addresses.first().ok_or(BusError::Address)?;
        let (count, mut connections) = watch::channel(0);
        let (count, expects_disconnect) = (Arc::new(count), Arc::<AtomicBool>::default());
        let options = credentials(first)
            .name("signalbox")
            .connection_timeout(Duration::from_secs(5))
            .ping_interval(PING)
            .request_timeout(Some(Duration::from_secs(5)))
            .reconnect_delay_callback(delay_before)
            .event_callback({
                let expects_disconnect = expects_disconnect.clone();
                move |event| {
                    let (count, expects_disconnect) = (count.clone(), expects_disconnect.clone());
                    async move { note(&event, &count, &expects_disconnect) }
                }
            });
        let client = options.connect(addresses).await.map_err(BusError::Connect)?;
        // Another task counts this connection; it must be counted before a caller starts to wait for the next one.
        if timeout(SETTLE, connections.wait_for(|count| *count > 0)).await.is_err() {
            tracing::debug!("the first connection to NATS is not counted yet");
        }
        let (major, minor, patch) = MIN_SERVER;
        if !client.is_server_compatible(major, minor, patch) {
            return Err(BusError::TooOld(client.server_info().version));
        }
        let jetstream = jetstream::new(client.clone());
        let name = Arc::from(client.new_inbox());
        let (stuck, unstored, answered, wakeups) = Default::default();
        Ok(Self {
            client,
            jetstream,
            replicas: 1,
            connections,
            expects_disconnect,
            stuck,
            unstored,
            answered,
            name,
            wakeups,
        })
    }

    /// The same connection, for streams of which `replicas` servers keep a copy.
    #[must_use]
    pub fn with_replicas(self, replicas: usize) -> Self {
        Self { replicas, ..self }
    }

    /// Counts connections: it changes after each reconnect, when pull subscriptions have to be renewed and JetStream
    /// may have lost its messages.
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.connections.clone()
    }

    /// Time since a handler carried out or refused a command of this process; `None` if there was no such command.
    pub fn since_answer(&self) -> Option<Duration> {
        self.answered.lock().unwrap_or_else(PoisonError::into_inner).map(|at| at.elapsed())
    }

    /// Time for which messages were published and none was stored; `None` since one was. While nothing is published it does not grow: a
    /// single message that was lost says nothing of the server.
    pub fn unstored_for(&self) -> Option<Duration> {
        self.unstored.lock().unwrap_or_else(PoisonError::into_inner).map(Unstored::time)
    }

    /// Stops warning of a lost connection: the process ends, and perhaps the server with it.
    pub fn expect_disconnect(&self) {
        self.expects_disconnect.store(true, Ordering::Relaxed);
    }

    /// Whether the server is reachable now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// The server's version.
    pub fn server_version(&self) -> String {
        self.client.server_info().version
    }

    /// Number of servers in the cluster, as far as known.
    pub fn servers(&self) -> usize {
        self.client.server_info().connect_urls.len().max(1)
    }

    /// Asks JetStream for a sign of life.
    ///
    /// # Errors
    /// [`BusError::Stream`] if the stream does not exist.
    #[boxed]
    pub async fn ask_jetstream(&self) -> Result<(), BusError> {
        let asked = self.jetstream.query_account().await;
        asked.map(|_| ()).map_err(|error| BusError::Stream(error.to_string()))
    }

    /// Flushes buffered messages, at most for 2 s.
    #[boxed]
    pub async fn flush(&self) {
        let flushed = timeout(SETTLE, self.client.flush()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::warn!("the bus could not be flushed in time");
        }
    }
}

/// How long attempt number `attempt` to connect waits, from 1: the first does not, and later ones spare a server that starts.
fn delay_before(attempt: usize) -> Duration {
    match attempt {
        0 | 1 => Duration::ZERO,
        later => Duration::from_millis(50 << later.min(5)),
    }
}

/// The client passes over user and password in the address, so they are taken out of it here.
fn credentials(address: &ServerAddr) -> ConnectOptions {
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    match (address.username().map(decoded), address.password().map(decoded)) {
        (Some(user), Some(password)) => ConnectOptions::with_user_and_password(user, password),
        (Some(token), None) => ConnectOptions::with_token(token),
        _ => ConnectOptions::new(),
    }
}

fn note(event: &Event, count: &watch::Sender<u64>, expects_disconnect: &AtomicBool) {
    match event {
        Event::Connected => count.send_modify(|count| *count += 1),
        _ if expects_disconnect.load(Ordering::Relaxed) => tracing::debug!(%event, "the bus ends"),
        Event::Disconnected => tracing::warn!("the connection to NATS is lost; reconnecting"),
        Event::SlowConsumer(_) | Event::ServerError(_) | Event::ClientError(_) => {
            tracing::warn!(%event, "the bus reports a problem");
        }
        _ => {}
    }
}
