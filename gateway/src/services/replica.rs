//! Queries at a replica of the database, and writes that wait until it shows them.
//!
//! A request that only reads uses the replica while it follows the primary closely, and the primary otherwise; see
//! [`Database::read`]. Credentials, reads of writes, streams and waits use the primary. An answer to a write waits until
//! the replica has replayed everything that the primary had written before: so later requests, at any gateway that
//! reads the same replica, show the write.
//!
//! Should the replica hang, die or fall behind, gateways leave it within [`FRESH`]; only after [`GRACE`], when none can be
//! reading there any more, do writes stop waiting for it. When it is back they wait for it at once, and gateways read there
//! after [`PROBATION`].

use std::{
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use signalbox_clock::Clock;
use signalbox_database::{OwnConnection, server_time, within};
use signalbox_metrics::metrics;
use sqlx::PgPool;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep, sleep_until, timeout},
};

/// How long the replica is read after it was last seen to have caught up.
pub const FRESH: Duration = Duration::from_millis(600);
/// How long writes wait for a replica that does not answer or does not catch up. By then every gateway has left it.
const GRACE: Duration = Duration::from_secs(1);
/// How long a replica that was lost has to follow before it is read again. By then every gateway's writes wait for it.
const PROBATION: Duration = Duration::from_secs(1);
/// Interval of checks while there are no writes.
const BEAT: Duration = Duration::from_millis(100);
/// How long one question to it, or about it, may take.
const ANSWER: Duration = Duration::from_millis(300);
/// Interval of checks whether it has caught up.
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Writes that wait for one answer of it.
const TOGETHER: usize = 1024;

tokio::task_local! {
    /// Set while a request is served that only reads.
    static ONLY_READS: ();
}

/// A replica of the database.
#[derive(Debug)]
pub(crate) struct Replica {
    pool: PgPool,
    standing: Arc<Standing>,
    waiting: mpsc::Sender<oneshot::Sender<bool>>,
}

/// How well the replica follows.
#[derive(Debug)]
struct Standing(Mutex<Seen>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    /// It shows all that was written before this.
    caught_up: Instant,
    /// When it may be read; none while it is lost.
    serves_from: Option<Instant>,
    was_lost: bool,
}

impl Replica {
    /// Follows the replica of `pool` until the gateway ends.
    pub(crate) fn follow(pool: PgPool, primary: &PgPool) -> Self {
        let standing = Arc::new(Standing::new(Instant::now()));
        let (waiting, asked) = mpsc::channel(TOGETHER);
        let follower = Follower {
            primary: OwnConnection::new(primary, &[]),
            replica: OwnConnection::new(&pool, &[]),
            standing: standing.clone(),
        };
        tokio::spawn(follower.run(asked));
        Self { pool, standing, waiting }
    }

    /// Waits until reads there can no longer miss anything written before this call; false if that takes too long.
    pub(crate) async fn shows_all(&self) -> bool {
        let (sender, shown) = oneshot::channel();
        match self.waiting.send(sender).await {
            Ok(()) => shown.await.unwrap_or(false),
            Err(_) => false,
        }
    }

    /// The result of `query` there; `None` if it fails or the replica is lost meanwhile.
    async fn ask<'a, T, E: Display, Q>(&'a self, query: &impl Fn(&'a PgPool) -> Q) -> Option<T>
    where
        Q: Future<Output = Result<T, E>>,
    {
        tokio::select! {
            answered = query(&self.pool) => answered
                .inspect_err(|error| note_failed_query(error))
                .ok(),
            () = self.standing.lost() => None,
        }
    }
}

fn note_failed_query(error: &dyn Display) {
    tracing::debug!(%error, "the replica failed a query; the primary is asked");
}

/// The primary and, if there is one, its replica. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Database {
    pub(crate) clock: Clock,
    pub(crate) primary: PgPool,
    pub(crate) replica: Option<Arc<Replica>>,
}

impl Database {
    /// The time by PostgreSQL's clock, for what another gateway compares.
    pub(crate) async fn time(&self) -> Result<DateTime<Utc>, sqlx::Error> {
        server_time(&self.primary, &self.clock).await
    }

    /// The result of `query`: from the replica if one follows and the request only reads, else from the primary, and
    /// also from the primary if the replica fails.
    pub(crate) async fn read<'a, T, E: Display, Q>(&'a self, query: impl Fn(&'a PgPool) -> Q) -> Result<T, E>
    where
        Q: Future<Output = Result<T, E>>,
    {
        if let Some(replica) = &self.replica
            && ONLY_READS.try_with(|()| ()).is_ok()
        {
            let found = if replica.standing.serves() { replica.ask(&query).await } else { None };
            metrics().replica_query(found.is_some());
            if let Some(found) = found {
                return Ok(found);
            }
        }
        query(&self.primary).await
    }
}

/// Runs `request`, which only reads: its queries may ask the replica.
pub(crate) async fn only_reading<F: Future>(request: F) -> F::Output {
    ONLY_READS.scope((), request).await
}

impl Standing {
    fn new(now: Instant) -> Self {
        // As if it had been there a moment ago: others may be reading it.
        Self(Mutex::new(Seen { caught_up: now, serves_from: None, was_lost: false }))
    }

    fn seen(&self) -> Seen {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serves(&self) -> bool {
        let seen = self.seen();
        seen.caught_up.elapsed() < FRESH && seen.serves_from.is_some_and(|from| from <= Instant::now())
    }

    /// Whether no gateway reads there any more.
    fn is_abandoned(&self) -> bool {
        self.seen().caught_up.elapsed() >= GRACE
    }

    /// Returns when the replica must not be read any more.
    async fn lost(&self) {
        while self.serves() {
            sleep_until(self.seen().caught_up + FRESH).await;
        }
    }

    /// The replica shows all that was written before `moment`.
    fn note_caught_up(&self, moment: Instant) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.serves_from.is_none() {
            let wait = if seen.was_lost { PROBATION } else { Duration::ZERO };
            seen.serves_from = Some(Instant::now() + wait);
            tracing::info!("the replica of the database follows: queries go there");
        }
        seen.caught_up = moment;
        metrics().replica_serves(true);
    }

    /// The replica did not answer, or did not catch up.
    fn note_failure(&self, reason: &str) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.caught_up.elapsed() >= FRESH && (seen.serves_from.is_some() || !seen.was_lost) {
            tracing::warn!(reason, "the replica of the database does not follow: the primary is asked");
            (seen.serves_from, seen.was_lost) = (None, true);
            metrics().replica_serves(false);
        }
    }
}

/// Looks after the replica.
struct Follower {
    primary: OwnConnection,
    replica: OwnConnection,
    standing: Arc<Standing>,
}

impl Follower {
    async fn run(mut self, mut asked: mpsc::Receiver<oneshot::Sender<bool>>) {
        let mut waiting: Vec<oneshot::Sender<bool>> = Vec::new();
        loop {
            if let Ok(0) = timeout(BEAT, asked.recv_many(&mut waiting, TOGETHER)).await {
                return;
            }
            let shown = self.catch_up().await;
            for sender in waiting.drain(..) {
                // The writer may have been dropped.
                let _ = sender.send(shown);
            }
        }
    }

    /// Waits until the replica has replayed the primary's current position, or until reads no longer use it.
    async fn catch_up(&mut self) -> bool {
        let begun = Instant::now();
        let end = match within(ANSWER, written(&mut self.primary)).await {
            Ok(end) => end,
            Err(error) => {
                self.standing.note_failure(&format!("the primary does not answer: {error}"));
                return self.standing.is_abandoned();
            }
        };
        loop {
            let delay = match within(ANSWER, has_replayed(&mut self.replica, &end)).await {
                Ok(true) => {
                    self.standing.note_caught_up(begun);
                    return true;
                }
                Ok(false) => {
                    self.standing.note_failure("it is behind");
                    POLL_INTERVAL
                }
                Err(error) => {
                    self.standing.note_failure(&error.to_string());
                    BEAT
                }
            };
            if self.standing.is_abandoned() {
                return true;
            }
            sleep(delay).await;
        }
    }
}

/// How far the primary has written its log.
async fn written(primary: &mut OwnConnection) -> Result<String, sqlx::Error> {
    let mut connection = primary.take().await?;
    let end = signalbox_database::written_position(&mut connection).await?;
    primary.keep(connection);
    Ok(end)
}

/// True once the replica has replayed WAL up to `end`; false on a server that is not in recovery.
async fn has_replayed(replica: &mut OwnConnection, end: &str) -> Result<bool, sqlx::Error> {
    let mut connection = replica.take().await?;
    let reached = signalbox_database::has_replayed(&mut connection, end).await?;
    replica.keep(connection);
    Ok(reached)
}
