//! The time by PostgreSQL's clock, which all processes share.
//!
//! Times that one process writes and another one compares are of this clock: claims, leases, due times, and the age by which
//! rows are deleted. The clocks of two machines may differ by an hour before it is a fault.

use std::{
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use chrono::{DateTime, SubsecRound, Utc};
use signalbox_boxed::boxed;
use signalbox_clock::Clock;
use sqlx::PgPool;

/// PostgreSQL's clock as it was read once, continued by this process's monotonic time.
#[derive(Debug, Clone)]
pub struct ServerClock {
    read: DateTime<Utc>,
    read_at: Duration,
    clock: Clock,
}

impl ServerClock {
    /// Reads PostgreSQL's clock; a manual clock stands for it.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn read(pool: &PgPool, clock: &Clock) -> Result<Self, sqlx::Error> {
        let read = match clock.manual_time() {
            Some(time) => time,
            None => sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(pool).await?,
        };
        Ok(Self { read, read_at: clock.monotonic(), clock: clock.clone() })
    }

    /// The present time, in whole microseconds.
    pub fn now(&self) -> DateTime<Utc> {
        (self.read + self.age()).trunc_subsecs(6)
    }

    /// Time since it was read.
    fn age(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.read_at)
    }
}

/// PostgreSQL's time for work that asks for it many times a second: PostgreSQL is asked once a second. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct CachedServerClock(Arc<Mutex<Option<ServerClock>>>);

/// How long a clock is used that has been read: for so long it is unnoticed that PostgreSQL's was set.
const REUSED: Duration = Duration::from_secs(1);

impl CachedServerClock {
    /// PostgreSQL's clock as it was read within the last second; a manual clock stands for it.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn get(&self, pool: &PgPool, clock: &Clock) -> Result<ServerClock, sqlx::Error> {
        if clock.is_manual() {
            return ServerClock::read(pool, clock).await;
        }
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.age() < REUSED) {
            return Ok(known);
        }
        let read = ServerClock::read(pool, clock).await?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(read.clone());
        Ok(read)
    }
}

/// PostgreSQL's time for code that cannot ask for it each time. Clones share it.
///
/// Between two refreshes it continues by monotonic time, which stands still while a machine is suspended. It is ahead of
/// PostgreSQL by at most the time of one answer, and never behind: a value that is dated by it is not older than one that
/// PostgreSQL recorded before.
#[derive(Debug, Clone)]
pub struct SharedServerClock(Arc<RwLock<ServerClock>>);

/// Answers of PostgreSQL that are awaited for an exact one.
const SAMPLES: usize = 10;
/// An answer within this time is exact enough: a value that is dated by the clock, stored and answered has taken longer, so that what is
/// recorded after it is not older.
const EXACT: Duration = Duration::from_millis(2);
/// The clock that has been set by less than this continues.
const TOLERANCE: Duration = Duration::from_millis(100);

impl SharedServerClock {
    /// Reads PostgreSQL's clock; a manual clock stands for it.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn read(pool: &PgPool, clock: &Clock) -> Result<Self, sqlx::Error> {
        let (read, _) = sample(pool, clock).await?;
        Ok(Self(Arc::new(RwLock::new(read))))
    }

    /// Reads PostgreSQL's clock again; it may have been set, and this machine suspended.
    ///
    /// # Errors
    /// The database's error; the time then continues.
    #[boxed]
    pub async fn refresh(&self, pool: &PgPool) -> Result<(), sqlx::Error> {
        let clock = self.0.read().unwrap_or_else(PoisonError::into_inner).clock.clone();
        let (read, took) = sample(pool, &clock).await?;
        let ahead = (read.now() - self.now()).to_std().ok();
        // Neither is behind PostgreSQL, so the earlier one is more exact, unless the clock was set.
        if ahead.is_none_or(|ahead| ahead > took + TOLERANCE) {
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = read;
        }
        Ok(())
    }

    /// The present time, in whole microseconds.
    pub fn now(&self) -> DateTime<Utc> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).now()
    }
}

/// PostgreSQL's clock as of the moment at which it was asked, and the time of the answer.
async fn sample(pool: &PgPool, clock: &Clock) -> Result<(ServerClock, Duration), sqlx::Error> {
    let mut best: Option<(ServerClock, Duration)> = None;
    for _ in 0..SAMPLES {
        let asked = clock.monotonic();
        let mut read = ServerClock::read(pool, clock).await?;
        let took = read.read_at.saturating_sub(asked);
        read.read_at = asked;
        if took <= EXACT {
            return Ok((read, took));
        }
        if best.as_ref().is_none_or(|(_, least)| took < *least) {
            best = Some((read, took));
        }
    }
    best.ok_or(sqlx::Error::PoolTimedOut)
}

/// The present time by PostgreSQL's clock; a manual clock stands for it.
///
/// # Errors
/// The database's error.
#[boxed]
pub async fn server_time(pool: &PgPool, clock: &Clock) -> Result<DateTime<Utc>, sqlx::Error> {
    ServerClock::read(pool, clock).await.map(|server| server.now())
}
