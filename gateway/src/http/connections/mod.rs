//! Accepted connections: how many there are, whose they are, and which of them give way.
//!
//! A connection holds a place from its acceptance until its socket is closed, also after an upgrade to a WebSocket. When
//! the places of an address, or all places, are taken, the connection that has waited longest without a request gives way
//! to the new one; if every one of them carries a request, the new one is refused. Half-open requests therefore displace
//! each other, and never the ones that are being served.

mod accept;
mod body;
mod delivery;
mod socket;

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use rustix::process::{Resource, getrlimit};
use signalbox_config::Server;
use tokio::{net::TcpStream, sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

pub(crate) use accept::accept;
use body::Leftover;
pub(crate) use body::limit_body;
pub(crate) use delivery::Delivery;
use delivery::Trace;

use crate::http::network::Network;

/// Connections at most, where the limit of open files allows more.
const MAX_CONNECTIONS: usize = 16_384;
/// How long an address keeps its higher limit after the last agent there has disconnected.
const AGENT_MEMORY: Duration = Duration::from_secs(600);
/// Refused bodies that are read to their end at the same time, from one client's address.
const DRAINS_PER_NETWORK: usize = 64;

/// How long a connection may take for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// For the header of a request, from its first byte, or from the acceptance of the connection.
    header: Duration,
    /// Between two requests.
    idle: Duration,
    /// Without a byte of a body, in either direction.
    stall: Duration,
    /// Bytes a second that a body must have on average, an agent's apart.
    least_rate: u32,
}

/// All connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    pace: Pace,
    most: usize,
    per_address: usize,
    per_agent_address: usize,
    trusted: Vec<IpAddr>,
    places: Mutex<Places>,
}

#[derive(Debug, Default)]
struct Places {
    taken: usize,
    newest: u64,
    networks: HashMap<Network, Held>,
    drains: Drains,
}

/// Refused bodies that are being read to their end: in all, and of each client's address.
#[derive(Debug, Default)]
struct Drains {
    all: usize,
    networks: HashMap<Network, usize>,
}

/// Connections and bodies of one address or /64.
#[derive(Debug, Default)]
struct Held {
    connections: HashMap<u64, Arc<Shared>>,
    agents: usize,
    agents_until: Option<Instant>,
}

/// A connection, as its requests see it: an extension of each of them.
#[derive(Debug, Clone)]
pub(crate) struct Connection(Arc<Shared>);

/// One request on a connection, and its answer.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    connection: Connection,
    /// Counts the requests of the connection.
    number: usize,
}

#[derive(Debug)]
struct Shared {
    id: u64,
    peer: IpAddr,
    socket: Weak<TcpStream>,
    pace: Pace,
    progress: Mutex<Progress>,
    is_agent: AtomicBool,
    /// Whether the running request is an agent's: a proxy sends those of others on the same connection.
    serves_agent: AtomicBool,
    /// Bytes a second that the body of the running request must have on average; 0 for the listener's limit alone.
    required_rate: AtomicU32,
    /// Whether the client may still be sending when the connection is closed.
    lingers: AtomicBool,
    end: CancellationToken,
    leftovers: mpsc::Sender<Leftover>,
    /// Set while it is followed whether an answer reaches the peer.
    trace: Mutex<Option<Arc<Trace>>>,
}

#[derive(Debug)]
struct Progress {
    /// Requests whose answer has not been handed over, and bodies that are being discarded.
    running: usize,
    served: usize,
    /// When the first byte of the next request arrived.
    header_since: Option<Instant>,
    moved: Instant,
}

/// A place among the connections, given back when the socket is closed.
#[derive(Debug)]
struct Place {
    connections: Arc<Connections>,
    network: Network,
    shared: Arc<Shared>,
}

/// A request that is under way.
#[derive(Debug)]
struct Running(Arc<Shared>);

/// A refused body that is read to its end, as one of those of its client.
#[derive(Debug)]
struct Drain {
    connections: Arc<Connections>,
    /// None for a proxy that does not say who its client is.
    network: Option<Network>,
}

impl Connections {
    /// The places that `settings` allow, and the limit of open files.
    pub(crate) fn new(settings: &Server) -> Self {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
        let most = match settings.max_connections as usize {
            0 => (files / 4 * 3).clamp(64, MAX_CONNECTIONS),
            most => most,
        };
        Self {
            pace: Pace {
                header: Duration::from_secs(settings.header_seconds.into()),
                idle: Duration::from_secs(settings.idle_seconds.into()),
                stall: Duration::from_secs(settings.stall_seconds.into()),
                least_rate: settings.min_body_bytes_per_second,
            },
            most,
            // One address never takes the places of all others.
            per_address: (settings.max_connections_per_address as usize).min(most / 2),
            per_agent_address: (settings.max_connections_per_agent_address as usize).min(most / 2),
            trusted: settings.trusted_proxies.clone(),
            places: Mutex::default(),
        }
    }

    /// Places of their own for a listener that operators use, apart from those of clients.
    pub(crate) fn for_operators(settings: &Server) -> Self {
        Self { most: 128, per_address: 64, per_agent_address: 64, trusted: Vec::new(), ..Self::new(settings) }
    }

    /// A place for `stream`, or `None` if all connections that could give way carry a request.
    fn admit(
        self: &Arc<Self>,
        stream: &Arc<TcpStream>,
        peer: SocketAddr,
        leftovers: mpsc::Sender<Leftover>,
    ) -> Option<Place> {
        let (peer, now) = (peer.ip().to_canonical(), Instant::now());
        let network = Network::from(peer);
        let mut places = self.places();
        if !self.trusted.contains(&peer)
            && let Some(held) = places.networks.get(&network)
            && held.connections.len() >= self.limit_of(held, now)
            && !held.displace()
        {
            return None;
        }
        if places.taken >= self.most && !places.displace() {
            return None;
        }
        places.newest += 1;
        let progress = Progress { running: 0, served: 0, header_since: None, moved: now };
        let shared = Arc::new(Shared {
            id: places.newest,
            peer,
            socket: Arc::downgrade(stream),
            pace: self.pace,
            progress: Mutex::new(progress),
            is_agent: AtomicBool::new(false),
            serves_agent: AtomicBool::new(false),
            required_rate: AtomicU32::new(0),
            lingers: AtomicBool::new(false),
            end: CancellationToken::new(),
            leftovers,
            trace: Mutex::default(),
        });
        places.taken += 1;
        let held = places.networks.entry(network).or_default();
        held.connections.insert(shared.id, Arc::clone(&shared));
        Some(Place { connections: Arc::clone(self), network, shared })
    }

    fn limit_of(&self, held: &Held, now: Instant) -> usize {
        if held.has_agents(now) { self.per_agent_address } else { self.per_address }
    }

    /// Closes the connection that has waited longest without a request, for want of open files.
    fn displace(&self) -> bool {
        self.places().displace()
    }

    /// The address has an agent: it keeps the higher limit while that is connected, and for a while after.
    pub(crate) fn note_agent(&self, connection: &Connection) {
        connection.0.serves_agent.store(true, Ordering::Relaxed);
        if connection.0.is_agent.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Some(held) = self.places().networks.get_mut(&connection.0.peer.into()) {
            held.agents += 1;
        }
    }

    /// Room to read a refused body of `client` to its end. In all they never take more than half of the connections.
    fn begin_drain(self: &Arc<Self>, client: IpAddr) -> Option<Drain> {
        let network = (!self.trusted.contains(&client)).then(|| Network::from(client));
        let is_begun = self.places().drains.begin(network, self.most / 2);
        is_begun.then(|| Drain { connections: Arc::clone(self), network })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Places {
    /// Closes a connection without a request, of the address that holds most of them.
    fn displace(&self) -> bool {
        let mut held: Vec<_> = self.networks.values().collect();
        held.sort_unstable_by_key(|held| std::cmp::Reverse(held.connections.len()));
        held.into_iter().any(Held::displace)
    }
}

impl Drains {
    /// False if there are `most`, or too many of `network`.
    fn begin(&mut self, network: Option<Network>, most: usize) -> bool {
        if self.all >= most {
            return false;
        }
        if let Some(network) = network {
            let own = self.networks.entry(network).or_default();
            if *own >= DRAINS_PER_NETWORK {
                return false;
            }
            *own += 1;
        }
        self.all += 1;
        true
    }

    fn end(&mut self, network: Option<Network>) {
        self.all -= 1;
        let Some(network) = network else { return };
        let Some(own) = self.networks.get_mut(&network) else { return };
        *own -= 1;
        if *own == 0 {
            self.networks.remove(&network);
        }
    }
}

impl Held {
    fn has_agents(&self, now: Instant) -> bool {
        self.agents > 0 || self.agents_until.is_some_and(|until| now < until)
    }

    /// Closes the connection that has waited longest without a request; connections that have never made one first.
    fn displace(&self) -> bool {
        let waiting = self.connections.values().filter_map(|shared| Some((shared.waiting()?, shared)));
        match waiting.min_by_key(|(rank, _)| *rank) {
            Some((_, shared)) => {
                shared.end.cancel();
                true
            }
            None => false,
        }
    }
}

impl Connection {
    /// The address of the other end.
    pub(crate) fn peer(&self) -> IpAddr {
        self.0.peer
    }

    /// The socket, while it is open.
    fn socket(&self) -> Option<Arc<TcpStream>> {
        self.0.socket.upgrade()
    }

    /// Closes the connection now, whatever request is under way on it. Without effect after an upgrade.
    fn end(&self) {
        self.0.end.cancel();
    }

    /// The request that is being answered. Connections carry one at a time.
    pub(crate) fn exchange(&self) -> Exchange {
        Exchange { connection: self.clone(), number: self.0.progress().served }
    }

    /// Demands `rate` bytes a second of the body of the running request, on average.
    pub(crate) fn require_rate(&self, rate: u32) {
        self.0.required_rate.store(rate, Ordering::Relaxed);
    }

    /// Resets what is known of the previous request: a connection carries one after the other.
    fn begin_body(&self) {
        self.require_rate(0);
        self.0.serves_agent.store(false, Ordering::Relaxed);
    }

    /// Whether the running request is an agent's.
    fn serves_agent(&self) -> bool {
        self.0.serves_agent.load(Ordering::Relaxed)
    }

    /// The client may still be sending when the connection is closed.
    fn linger(&self) {
        self.0.lingers.store(true, Ordering::Relaxed);
    }
}

impl Exchange {
    /// Closes the connection now, also when the client reads nothing of the answer. A client that has sent another request
    /// since has read it, and keeps the connection.
    pub(crate) fn end(&self) {
        if self.connection.0.progress().served == self.number {
            self.connection.end();
        }
    }
}

impl Shared {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trace(&self) -> MutexGuard<'_, Option<Arc<Trace>>> {
        self.trace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(self: &Arc<Self>) -> Running {
        let mut progress = self.progress();
        progress.running += 1;
        progress.served += 1;
        progress.header_since = None;
        Running(Arc::clone(self))
    }

    /// Counts a refused body that is being discarded like a request.
    fn keep_busy(self: &Arc<Self>) -> Running {
        self.progress().running += 1;
        Running(Arc::clone(self))
    }

    /// A socket that speaks another protocol from now on is in use until it is closed.
    fn keep_upgraded(&self) {
        self.progress().running += 1;
    }

    fn note_read(&self) {
        let mut progress = self.progress();
        if progress.running == 0 && progress.header_since.is_none() {
            progress.header_since = Some(Instant::now());
        }
    }

    fn note_written(&self) {
        self.progress().moved = Instant::now();
    }

    /// Until when the next request must have arrived; `None` while one is under way.
    fn deadline(&self) -> Option<Instant> {
        let progress = self.progress();
        if progress.running > 0 {
            return None;
        }
        Some(match progress.header_since {
            Some(since) => since + self.pace.header,
            None if progress.served == 0 => progress.moved + self.pace.header,
            None => progress.moved + self.pace.idle,
        })
    }

    /// Order in which connections give way; `None` while a request is under way, or once this one has been closed.
    fn waiting(&self) -> Option<(bool, Instant)> {
        let progress = self.progress();
        let is_served = progress.served > 0 && progress.header_since.is_none();
        let since = progress.header_since.unwrap_or(progress.moved);
        (progress.running == 0 && !self.end.is_cancelled()).then_some((is_served, since))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut progress = self.0.progress();
        progress.running -= 1;
        progress.moved = Instant::now();
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.connections.places().drains.end(self.network);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut places = self.connections.places();
        places.taken -= 1;
        let Some(held) = places.networks.get_mut(&self.network) else { return };
        held.connections.remove(&self.shared.id);
        let now = Instant::now();
        if self.shared.is_agent.load(Ordering::Relaxed) {
            held.agents -= 1;
            held.agents_until = Some(now + AGENT_MEMORY);
        }
        if held.connections.is_empty() && !held.has_agents(now) {
            places.networks.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests;
