use std::{sync::PoisonError, time::Duration};

use chrono::{DateTime, Utc};
use signalbox_clock::Clock;
use signalbox_database::{Fault, faults, on_behalf};
use signalbox_projections::monitoring::series::last_time;
use sqlx::PgPool;
use tokio::{
    sync::Mutex,
    time::{Instant, timeout},
};

/// Health never waits longer. Its database query ends with it.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the time of the newest datapoint is remembered.
const MEMORY: Duration = Duration::from_millis(800);
/// How long the list of faults is remembered.
const FAULTS_MEMORY: Duration = Duration::from_millis(800);

/// The memory of health checks: anybody asks for them, without limits, so they must cost next to nothing.
#[derive(Debug)]
pub(crate) struct Pulse {
    pool: PgPool,
    clock: Clock,
    started: Duration,
    /// Requests that arrive while it is being looked up wait for the answer.
    newest: Mutex<Option<Newest>>,
    faults_read_at: Mutex<Option<Instant>>,
    /// Those known last; none before the first answer.
    faults: std::sync::Mutex<Vec<Fault>>,
}

/// The time of the newest datapoint, and when it was looked up.
#[derive(Debug, Clone, Copy)]
struct Newest {
    time: Option<DateTime<Utc>>,
    at: Duration,
}

impl Pulse {
    /// The pulse of a gateway that starts now.
    pub(crate) fn new(pool: PgPool, clock: Clock) -> Self {
        Self {
            started: clock.monotonic(),
            pool,
            clock,
            newest: Mutex::default(),
            faults_read_at: Mutex::default(),
            faults: std::sync::Mutex::default(),
        }
    }

    /// Time since the gateway started.
    pub(crate) fn uptime(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.started)
    }

    /// The time of the newest datapoint; `None` also when it cannot be found out.
    pub(crate) async fn last_datapoint(&self) -> Option<DateTime<Utc>> {
        timeout(PROBE_TIMEOUT, on_behalf((), self.look_up())).await.ok().flatten()
    }

    /// The parts that do not work; those known last while the database does not answer.
    pub(crate) async fn faults(&self) -> Vec<Fault> {
        match timeout(PROBE_TIMEOUT, on_behalf((), self.look_up_faults())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the faults known last are shown"),
            Err(_) => tracing::debug!("the faults known last are shown: the database is slow"),
        }
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Callers that arrive while the list is read wait for it.
    async fn look_up_faults(&self) -> Result<(), sqlx::Error> {
        let mut read_at = self.faults_read_at.lock().await;
        if read_at.is_some_and(|at| at.elapsed() < FAULTS_MEMORY) {
            return Ok(());
        }
        let found = faults(&self.pool).await?;
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = found;
        *read_at = Some(Instant::now());
        Ok(())
    }

    async fn look_up(&self) -> Option<DateTime<Utc>> {
        let mut newest = self.newest.lock().await;
        let now = self.clock.monotonic();
        if let Some(known) = newest.filter(|known| now.saturating_sub(known.at) < MEMORY) {
            return known.time;
        }
        let time = last_time(&self.pool).await.ok()?;
        *newest = Some(Newest { time, at: now });
        time
    }
}
