//! One active process per piece of work: a lease is a session lock in PostgreSQL. It is for economy; correctness never
//! depends on it.
//!
//! All leases of a part of a process are held on one connection. The server releases them when the connection ends,
//! as it does when the process is killed. A process that hangs, or whose machine has failed, keeps its connection for
//! long: so each holder sends a heartbeat on it twice a second, and any other process ends sessions without a
//! heartbeat for three seconds.

use signalbox_boxed::boxed;
use std::{
    collections::HashSet,
    sync::{Arc, Weak},
    time::Duration,
};

use signalbox_database::within;
use sqlx::{Connection, PgConnection, PgPool, postgres::PgConnectOptions};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::sleep,
};

/// How often a waiting process tries to take a lease: the longest delay after its holder was killed.
const RETRY: Duration = Duration::from_millis(500);
/// Interval of a session's heartbeats.
const BEAT: Duration = Duration::from_millis(500);
/// Time limit of the server's answers; after it the session is abandoned.
const LEASE_TIMEOUT: Duration = Duration::from_secs(2);
/// Marks the sessions that hold leases.
const SESSION: &str = "signalbox leases";

/// Where a part of a process gets its leases. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Leases(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: PgConnectOptions,
    session: Mutex<Session>,
    /// Leases whose holders were dropped, with the number of their session.
    returned: std::sync::Mutex<Vec<(u64, String)>>,
}

#[derive(Debug, Default)]
struct Session {
    connection: Option<PgConnection>,
    /// Another one for each connection: leases of an earlier connection are lost.
    number: u64,
    held: HashSet<String>,
}

/// The right to be the active one, as long as it is kept and [`Lease::holds`].
#[derive(Debug)]
pub struct Lease {
    name: String,
    session: u64,
    shared: Arc<Shared>,
}

impl Leases {
    /// Leases in the database of `pool`; the connection is opened with the first one.
    pub fn new(pool: &PgPool) -> Self {
        let options = PgConnectOptions::clone(&pool.connect_options()).application_name(SESSION);
        let shared = Arc::new(Shared { options, session: Mutex::default(), returned: Default::default() });
        tokio::spawn(beat(Arc::downgrade(&shared)));
        Self(shared)
    }

    /// Waits until the lease `name` is free and takes it.
    #[boxed]
    pub async fn acquire(&self, name: &str) -> Lease {
        loop {
            match self.attempt(name).await {
                Ok(Some(lease)) => return lease,
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, lease = name, "a lease cannot be asked for"),
            }
            sleep(RETRY).await;
        }
    }

    async fn attempt(&self, name: &str) -> Result<Option<Lease>, sqlx::Error> {
        let mut session = self.0.session().await;
        // The server would grant it once more to the session that has it.
        if session.held.contains(name) || !session.lock(&self.0.options, name).await? {
            return Ok(None);
        }
        session.held.insert(name.to_owned());
        Ok(Some(Lease { name: name.to_owned(), session: session.number, shared: self.0.clone() }))
    }
}

impl Lease {
    /// Whether the session that holds the lease is still open, as far as this process knows.
    #[boxed]
    pub async fn holds(&self) -> bool {
        let session = self.shared.session().await;
        session.number == self.session && session.connection.is_some()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Ok(mut returned) = self.shared.returned.lock() {
            returned.push((self.session, std::mem::take(&mut self.name)));
        }
    }
}

impl Shared {
    /// The session, after releasing the leases returned meanwhile.
    async fn session(&self) -> MutexGuard<'_, Session> {
        let mut session = self.session.lock().await;
        let returned = self.returned.lock().map(|mut names| std::mem::take(&mut *names)).unwrap_or_default();
        for (number, name) in returned {
            if number == session.number {
                session.unlock(&name).await;
            }
        }
        session
    }
}

impl Session {
    async fn lock(&mut self, options: &PgConnectOptions, name: &str) -> Result<bool, sqlx::Error> {
        if self.connection.is_none() {
            self.connection = Some(within(LEASE_TIMEOUT, PgConnection::connect_with(options)).await?);
            self.number += 1;
        }
        self.ask("SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name).await
    }

    async fn unlock(&mut self, name: &str) {
        self.held.remove(name);
        if let Err(error) = self.ask("SELECT pg_advisory_unlock(hashtextextended($1, 0))", name).await {
            tracing::warn!(%error, lease = name, "a lease was given back with its session");
        }
    }

    /// Sends a heartbeat for this session, and ends sessions without one.
    async fn beat(&mut self) {
        if self.connection.is_none() {
            return;
        }
        const END_HUNG: &str =
            "SELECT coalesce(bool_or(pg_terminate_backend(pid)), false) FROM pg_stat_activity
              WHERE datname = current_database() AND usename = current_user AND application_name = $1
                AND pid <> pg_backend_pid() AND state = 'idle'
                AND state_change < clock_timestamp() - interval '3 seconds'";
        match self.ask(END_HUNG, SESSION).await {
            Ok(true) => tracing::warn!("another process holds leases and hangs: they are taken from it"),
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the session that holds leases is lost"),
        }
    }

    /// After an error nothing is held any more: the connection is closed.
    async fn ask(&mut self, question: &str, text: &str) -> Result<bool, sqlx::Error> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let asked = sqlx::query_scalar(question).bind(text).fetch_one(connection);
        let answer = within(LEASE_TIMEOUT, asked).await;
        if answer.is_err() {
            self.connection = None;
            self.held.clear();
        }
        answer
    }
}

async fn beat(shared: Weak<Shared>) {
    loop {
        sleep(BEAT).await;
        let Some(shared) = shared.upgrade() else { return };
        shared.session().await.beat().await;
    }
}
