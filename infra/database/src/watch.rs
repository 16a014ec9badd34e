//! Closes connections on which PostgreSQL has gone silent.
//!
//! sqlx waits for an answer without limit and sets no keepalive. A thread of its own looks twice a second at the sockets of
//! all connections that are in use. It shuts a socket down when
//!
//! * nothing arrived for the class's deadline, or
//! * nothing arrived for [`ASK_AFTER`], and PostgreSQL, asked over a new connection, does not reply or says that it is not
//!   working for that connection: the question or the answer was lost on the way.
//!
//! The statement then fails with an error of input and output, and the pool opens another connection. The thread is for
//! availability only: a connection that is shut down without need costs its owner one repetition. The kernel's keepalive
//! ends connections whose peer's machine is gone; the thread also covers proxies that accept bytes and drop them.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use futures::future::join_all;
use signalbox_sockets::{Keepalive, Socket, Traffic, address_of_content};
use sqlx::{Connection, Executor, PgConnection, Row, postgres::PgConnectOptions};

use crate::{class::Class, within};

const TICK: Duration = Duration::from_millis(500);
/// A round that starts later than this means that the process was stopped: answers that arrived meanwhile are still to be read.
const LATE: Duration = Duration::from_secs(3);
/// Silence of a connection in use after which the server is asked about it.
const ASK_AFTER: Duration = Duration::from_secs(7);
/// Answers to questions about silent connections.
const ANSWER: Duration = Duration::from_secs(3);
/// The kernel's clock of traffic has this granularity at most.
const GRANULARITY: Duration = Duration::from_millis(20);
/// Attempts to find a new connection's socket among others opened at the same time.
const ATTEMPTS: usize = 3;
const KEEPALIVE: Keepalive = Keepalive {
    idle: Duration::from_secs(5),
    interval: Duration::from_secs(2),
    count: 3,
    unacknowledged: Duration::from_secs(10),
};

static WATCH: LazyLock<Watch> = LazyLock::new(Watch::start);

/// By the address of each connection's content, which it keeps for its life.
#[derive(Default)]
struct Watch(Arc<Mutex<HashMap<usize, Watched>>>);

#[derive(Clone)]
struct Watched {
    socket: Socket,
    /// Process id of the session at the server.
    session: i32,
    server: Arc<PgConnectOptions>,
    class: Class,
    use_: Use,
    /// A proxy of several servers answers questions for any of them.
    askable: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Statements run on it since then.
    Busy(Instant),
    /// Returned to its pool then, which pings it: it is idle when more than so many bytes have arrived.
    Returned { since: Instant, received: u64 },
    /// No statement runs on it.
    Idle,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Fine,
    Ask,
    Silent,
}

/// Starts to watch `connection`, which has just been opened with `options` and has no transaction.
///
/// sqlx does not show the socket, so it is found by its traffic: the one to the server's port that sends an unusual
/// number of bytes when `connection` does. A socket that is not found is not watched.
pub(crate) async fn register(
    connection: &mut PgConnection,
    options: &Arc<PgConnectOptions>,
    askable: bool,
) -> Result<(), sqlx::Error> {
    // Of a connection that was closed and had the same address.
    WATCH.all().remove(&address_of_content(connection));
    // In a Unix socket there is no network that could be lost.
    if options.get_socket().is_some() || options.get_host().starts_with('/') {
        return Ok(());
    }
    for _ in 0..ATTEMPTS {
        let Some((socket, session)) = find(connection, options.get_port()).await? else { continue };
        if let Err(error) = socket.keep_alive(KEEPALIVE) {
            tracing::debug!(%error, "a connection to PostgreSQL has no keepalive");
        }
        let watched = Watched {
            socket,
            session,
            server: options.clone(),
            class: Class::of(options),
            use_: Use::Busy(Instant::now()),
            askable,
        };
        WATCH.all().insert(address_of_content(connection), watched);
        return Ok(());
    }
    tracing::debug!("the socket of a connection to PostgreSQL was not found; it is not watched");
    Ok(())
}

/// Statements of `class` run on `connection` from now on.
pub(crate) fn take(connection: &PgConnection, class: Class) {
    WATCH.set(connection, |watched| (watched.use_, watched.class) = (Use::Busy(Instant::now()), class));
}

/// The pool of `connection` pings it, and keeps it.
pub(crate) fn put_back(connection: &PgConnection) {
    WATCH.set(connection, |watched| {
        let received = watched.socket.traffic().map(|traffic| traffic.bytes_received);
        watched.use_ =
            received.map_or(Use::Idle, |received| Use::Returned { since: Instant::now(), received });
    });
}

/// No statement runs on `connection` for now.
pub(crate) fn rest(connection: &PgConnection) {
    WATCH.set(connection, |watched| watched.use_ = Use::Idle);
}

/// The process id of the session of `connection`, and its server; `None` where they are not known for certain.
pub(crate) fn session(connection: &PgConnection) -> Option<(i32, Arc<PgConnectOptions>)> {
    let all = WATCH.all();
    let watched = all.get(&address_of_content(connection)).filter(|watched| watched.askable)?;
    Some((watched.session, watched.server.clone()))
}

/// Finds the socket of `connection` and the process id of its session.
async fn find(connection: &mut PgConnection, port: u16) -> Result<Option<(Socket, i32)>, sqlx::Error> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // Each of those that connect at the same time has a size of its own, and logins send less.
    let size = 2048 + 512 * (NEXT.fetch_add(1, Ordering::Relaxed) % 32);
    let sent = |socket: &Socket| socket.traffic().ok().map(|traffic| traffic.bytes_sent);
    let before: Vec<_> = {
        let known: HashSet<_> = WATCH.all().values().map(|watched| watched.socket).collect();
        let sockets = Socket::to_port(port)?.into_iter().filter(|socket| !known.contains(socket));
        sockets.filter_map(|socket| Some((socket, sent(&socket)?))).collect()
    };
    let statement = format!("SELECT pg_backend_pid() --{}", "-".repeat(size));
    let row = within(ANSWER, connection.fetch_one(statement.as_str())).await?;
    // The message's frame, and that of TLS, are much shorter than the distance of two sizes.
    let expected = size as u64..size as u64 + 256;
    let grew = |(socket, before): &(Socket, u64)| {
        sent(socket).is_some_and(|now| expected.contains(&now.saturating_sub(*before)))
    };
    let mut found = before.into_iter().filter(grew);
    Ok(match (found.next(), found.next()) {
        (Some((socket, _)), None) => Some((socket, row.try_get(0)?)),
        _ => None,
    })
}

impl Watch {
    fn start() -> Self {
        let watch = Self::default();
        let watched = watch.0.clone();
        let started = thread::Builder::new().name("silent sockets".to_owned()).spawn(move || run(&watched));
        if let Err(error) = started {
            tracing::error!(%error, "connections to PostgreSQL that go silent are not noticed");
        }
        watch
    }

    fn all(&self) -> MutexGuard<'_, HashMap<usize, Watched>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, connection: &PgConnection, change: impl FnOnce(&mut Watched)) {
        if let Some(watched) = self.all().get_mut(&address_of_content(connection)) {
            change(watched);
        }
    }
}

fn run(watched: &Mutex<HashMap<usize, Watched>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let Ok(runtime) = runtime.inspect_err(|error| {
        tracing::error!(%error, "connections to PostgreSQL that go silent are not noticed");
    }) else {
        return;
    };
    let mut last = Instant::now();
    loop {
        thread::sleep(TICK);
        let late = last.elapsed() > LATE;
        if !late {
            // One server after the other would delay the deadlines, which this thread enforces too.
            runtime.block_on(join_all(round(watched).into_iter().map(end_lost)));
        }
        last = Instant::now();
    }
}

/// Shuts down what is past its deadline; returns what is to be asked about, by server. Pools of one server have options of
/// their own.
fn round(watched: &Mutex<HashMap<usize, Watched>>) -> Vec<Vec<Watched>> {
    let mut questions: HashMap<Server, Vec<Watched>> = HashMap::new();
    watched.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, watched| {
        let Ok(traffic) = watched.socket.traffic() else { return false };
        match watched.judge(traffic) {
            Verdict::Fine => {}
            Verdict::Ask => {
                questions.entry(Server::of(&watched.server)).or_default().push(watched.clone());
            }
            Verdict::Silent => watched.end("it exceeded the deadline of its class"),
        }
        true
    });
    questions.into_values().collect()
}

impl Watched {
    fn judge(&self, traffic: Traffic) -> Verdict {
        let since = match self.use_ {
            Use::Busy(since) => since,
            Use::Returned { since, received } if traffic.bytes_received == received => since,
            Use::Returned { .. } | Use::Idle => return Verdict::Fine,
        };
        if traffic.unread > 0 {
            return Verdict::Fine;
        }
        let silent = traffic.since_received.min(since.elapsed());
        if silent >= self.class.deadline() {
            Verdict::Silent
        } else if silent >= ASK_AFTER
            && self.askable
            && (!self.class.may_idle() || traffic.since_sent + GRANULARITY < traffic.since_received)
        {
            Verdict::Ask
        } else {
            Verdict::Fine
        }
    }

    fn end(&self, reason: &str) {
        tracing::warn!(
            class = ?self.class,
            session = self.session,
            reason,
            "a connection to PostgreSQL went silent and is closed"
        );
        if let Err(error) = self.socket.shut_down() {
            tracing::debug!(%error, "the silent connection was closed already");
        }
    }
}

/// A server, and the user and database by which it is asked.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Server {
    host: String,
    port: u16,
    user: String,
    database: Option<String>,
}

impl Server {
    fn of(options: &PgConnectOptions) -> Self {
        Self {
            host: options.get_host().to_owned(),
            port: options.get_port(),
            user: options.get_username().to_owned(),
            database: options.get_database().map(str::to_owned),
        }
    }
}

/// Shuts down those of `silent`, all at one server, for which that server is not working.
async fn end_lost(silent: Vec<Watched>) {
    let Some(first) = silent.first() else { return };
    let sessions: Vec<_> = silent.iter().map(|watched| watched.session).collect();
    let busy = match within(ANSWER, busy_sessions(&first.server, &sessions)).await {
        Ok(busy) => busy,
        // It is there, and too busy for a question.
        Err(sqlx::Error::Database(error)) => {
            tracing::debug!(%error, "PostgreSQL cannot be asked about silent connections");
            return;
        }
        Err(_) => Vec::new(),
    };
    for watched in silent.iter().filter(|watched| !busy.contains(&watched.session)) {
        // Something may have arrived while the server was asked.
        if watched.socket.traffic().is_ok_and(|traffic| watched.judge(traffic) != Verdict::Fine) {
            watched.end("PostgreSQL is not working for it");
        }
    }
}

/// Those of `sessions` that execute a statement and do not wait for their client.
async fn busy_sessions(server: &PgConnectOptions, sessions: &[i32]) -> Result<Vec<i32>, sqlx::Error> {
    let mut connection = PgConnection::connect_with(server).await?;
    let asked = sqlx::query_scalar(
        "SELECT pid FROM pg_stat_activity
          WHERE pid = ANY($1) AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'",
    );
    let busy = asked.bind(sessions).fetch_all(&mut connection).await?;
    // The answer is known; how the connection ends does not matter.
    let _ = connection.close().await;
    Ok(busy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pools_of_a_server_ask_one_question() {
        let options = |url: &str| url.parse::<PgConnectOptions>().unwrap();
        let server = |url: &str| Server::of(&options(url));
        let first = server("postgres://user@127.0.0.1:5432/signalbox");
        assert_eq!(first, server("postgres://user:other@127.0.0.1:5432/signalbox?application_name=worker"));
        assert_ne!(first, server("postgres://user@127.0.0.1:5433/signalbox"));
    }
}
