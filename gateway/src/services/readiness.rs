//! Whether a process can serve requests.
//!
//! Ready means that within the last 10 s a command handler answered, at least one read model moved or had nothing left to apply,
//! and PostgreSQL answered through each pool of this process; and that the broker is connected, a user exists, and the process is
//! not stopping. A single part that is stuck shows in health instead, so that it takes no gateway out of service. A task observes
//! the first three once a second. A probe compares their times, observes once more if one is too old, and queries for a user.

use signalbox_boxed::boxed;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use chrono::DateTime;
use signalbox_clock::Clock;
use signalbox_database::{answers, on_behalf, within};
use signalbox_domain::{
    automation::{Health, HealthCommand, HealthReport, HealthStatus},
    kernel::{Actor, Metadata},
};
use signalbox_event_store::head_position;
use signalbox_messaging::Bus;
use signalbox_projections::{identity::queries::has_users, positions};
use sqlx::PgPool;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Each sign of life counts for so long.
const FRESH: Duration = Duration::from_secs(10);
const PERIOD: Duration = Duration::from_secs(1);
/// Without commands of others for so long, one without effect is sent.
const IDLE: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(2);
const COMMAND: Duration = Duration::from_secs(5);
/// A probe waits no longer.
const PROBE: Duration = Duration::from_secs(1);
/// An aggregate of which nothing is ever recorded.
const NOTHING: Uuid = Uuid::from_u128(0x5197_a1b0_0000_8000_8000_0000_0000_0003);

/// Signs of life of what this process depends on. Clones share them.
#[derive(Debug, Clone)]
pub struct Readiness(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    pool: PgPool,
    /// Further pools on the same database, which other roles of this process use.
    others: Vec<(&'static str, PgPool)>,
    bus: Bus,
    clock: Clock,
    stop: CancellationToken,
    seen: Mutex<Seen>,
    /// Held while a probe observes by itself.
    observing: tokio::sync::Mutex<()>,
    runs: AtomicBool,
}

#[derive(Debug, Default)]
struct Seen {
    positions: HashMap<String, i64>,
    read_models: Option<Instant>,
    pools: HashMap<&'static str, Instant>,
}

impl Readiness {
    /// Of a process that uses `pool` and, in other roles, `others` with their names.
    pub fn new(
        pool: PgPool,
        others: Vec<(&'static str, PgPool)>,
        bus: Bus,
        clock: Clock,
        stop: CancellationToken,
    ) -> Self {
        let (seen, observing, runs) = Default::default();
        Self(Arc::new(Shared { pool, others, bus, clock, stop, seen, observing, runs }))
    }

    /// Observes for ever; a second caller only waits.
    #[boxed]
    pub async fn run(&self) {
        if self.0.runs.swap(true, Ordering::Relaxed) {
            return std::future::pending().await;
        }
        tokio::join!(self.observe_always(), self.send_always());
    }

    async fn observe_always(&self) {
        let mut ticks = every_second();
        loop {
            ticks.tick().await;
            self.observe().await;
        }
    }

    async fn send_always(&self) {
        let mut ticks = every_second();
        loop {
            ticks.tick().await;
            self.send_idle().await;
        }
    }

    /// The parts that are missing for requests to be served.
    pub(crate) async fn missing_parts(&self) -> Vec<&'static str> {
        let (users, mut missing) =
            tokio::join!(timeout(PROBE, on_behalf((), has_users(&self.0.pool))), self.missing());
        match users {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => missing.push("users"),
            Ok(Err(_)) if !missing.contains(&"database") => missing.push("database"),
            // Without an answer in time, the last 10 s count: all connections may be busy.
            Ok(Err(_)) | Err(_) => {}
        }
        if !self.0.bus.is_connected() {
            missing.push("broker");
        }
        if self.0.stop.is_cancelled() {
            missing.push("stopping");
        }
        missing
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts without a sign of life within the last 10 s. If there are such, they are observed once more.
    async fn missing(&self) -> Vec<&'static str> {
        let missing = self.silent();
        if missing.is_empty() {
            return missing;
        }
        let again = async {
            let _observing = self.0.observing.lock().await;
            if !self.silent().is_empty() {
                tokio::join!(self.observe(), self.send_idle());
            }
        };
        // Late is the same as missing.
        let _ = timeout(PROBE, again).await;
        self.silent()
    }

    fn silent(&self) -> Vec<&'static str> {
        let now = Instant::now();
        let is_fresh = |at: Option<&Instant>| at.is_some_and(|at| now.duration_since(*at) <= FRESH);
        let seen = self.seen();
        let mut silent = Vec::new();
        if self.0.bus.since_answer().is_none_or(|since| since > FRESH) {
            silent.push("commands");
        }
        if !is_fresh(seen.read_models.as_ref()) {
            silent.push("read_models");
        }
        silent.extend(self.pools().map(|(name, _)| name).filter(|name| !is_fresh(seen.pools.get(name))));
        silent
    }

    fn pools(&self) -> impl Iterator<Item = (&'static str, &PgPool)> {
        let others = self.0.others.iter().map(|(name, pool)| (*name, pool));
        std::iter::once(("database", &self.0.pool)).chain(others)
    }

    async fn observe(&self) {
        for (name, pool) in self.pools() {
            if within(ANSWER, answers(pool)).await.is_ok() {
                self.seen().pools.insert(name, Instant::now());
            }
        }
        let read = async {
            let log = head_position(&self.0.pool).await?;
            Ok::<_, sqlx::Error>((log, positions(&self.0.pool).await?))
        };
        if let Ok((log, positions)) = within(ANSWER, read).await {
            self.seen().note_positions(log, positions, Instant::now());
        }
    }

    /// Sends a command that changes nothing, unless a handler answered another one a moment ago.
    async fn send_idle(&self) {
        let bus = &self.0.bus;
        if bus.since_answer().is_some_and(|since| since < IDLE) || !bus.is_connected() {
            return;
        }
        // The service's health is known to have been good before anything was recorded.
        let (since, components) = (DateTime::UNIX_EPOCH, Default::default());
        let command = HealthCommand::Report(HealthReport { since, status: HealthStatus::Ok, components });
        let metadata = Metadata {
            command_id: self.0.clock.new_id(),
            actor: Actor::system("readiness"),
            causation: None,
            correlation: String::new(),
            traceparent: None,
            restored_version: None,
        };
        let sent = bus.send::<Health>(NOTHING, None, &metadata, &command);
        if let Ok(Err(rejection)) = timeout(COMMAND, sent).await {
            tracing::debug!(%rejection, "no handler answered the command without effect");
        }
    }
}

impl Seen {
    /// Notes the positions of the read models and the end of the log.
    fn note_positions(&mut self, log: i64, positions: Vec<(String, i64)>, now: Instant) {
        // One that has nothing to do is not stuck: while others rest, a single stuck one takes no gateway out of service.
        let rests = positions.is_empty() || positions.iter().any(|(_, position)| *position >= log);
        let moved = positions.iter().any(|(name, position)| self.positions.get(name) != Some(position));
        if moved || rests {
            self.read_models = Some(now);
        }
        self.positions = positions.into_iter().collect();
    }
}

fn every_second() -> Interval {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_read_model_that_moves_or_rests_is_enough() {
        let (start, mut seen) = (Instant::now(), Seen::default());
        let mut note = |seconds: u64, log, positions: [i64; 2]| {
            let now = start + Duration::from_secs(seconds);
            let named = ["a", "b"].map(str::to_owned).into_iter().zip(positions).collect();
            seen.note_positions(log, named, now);
            now.duration_since(seen.read_models.unwrap()).as_secs()
        };
        assert_eq!(note(0, 9, [9, 9]), 0);
        assert_eq!(note(60, 9, [9, 9]), 0, "none has work");
        assert_eq!(note(61, 12, [12, 9]), 0, "one moved");
        assert_eq!(note(73, 12, [12, 9]), 0, "one rests");
        assert_eq!(note(74, 14, [12, 9]), 1, "both have work");
        assert_eq!(note(85, 14, [12, 9]), 12, "and none moves");
        assert_eq!(note(86, 14, [12, 10]), 0);
    }
}
