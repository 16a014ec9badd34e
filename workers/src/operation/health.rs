//! Publishes changes of overall health: of database and bus, and of all parts in the list of faults, as `/health` shows it.
//!
//! Every worker process polls them; the lease holder publishes. A status must hold for 5 s, so a quick restart is not
//! reported. Changes that were seen while bus or database were away are published when they are back, with the time when they were seen.
//! Several processes may publish the same: the aggregate takes the first. If the process crashes, what it had seen and not
//! published is lost; the next one publishes how things are now.

use signalbox_boxed::boxed;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, Utc};
use signalbox_database::faults;
use signalbox_domain::automation::{Health, HealthCommand, HealthReport, HealthStatus};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

const POLL_INTERVAL: Duration = Duration::from_millis(500);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// A status must hold for this long before it is published.
const HOLD: Duration = Duration::from_secs(5);
/// Changes waiting to be published; the oldest are dropped.
const WAITING: usize = 64;
/// Limit of the faults that a report names.
const NAMED: usize = 100;
const OK: &str = "ok";
const ERROR: &str = "error";
/// Id of the only aggregate.
const HEALTH: Uuid = Uuid::from_u128(0x5197_a1b0_0000_8000_8000_0000_0000_0001);

/// The observations of a process, shared by reporter and observer.
#[derive(Debug, Clone, Default)]
pub struct HealthWatch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The last status that held.
    settled: Option<HealthStatus>,
    /// A different status that has not held long enough yet, with the monotonic time of its first observation.
    candidate: Option<(HealthReport, Duration)>,
    unpublished: VecDeque<HealthReport>,
}

/// The reporter.
#[derive(Debug)]
pub struct HealthReporter(pub HealthWatch);

impl HealthWatch {
    /// Polls until dropped.
    #[boxed]
    pub async fn observe(&self, context: &Context) {
        loop {
            let asked = timeout(PROBE_TIMEOUT, faults(&context.pool)).await;
            let faults = asked.ok().and_then(Result::ok);
            let database = faults.is_some();
            let faults = faults.into_iter().flatten().map(|fault| fault.part);
            let broker = context.bus.is_connected();
            let now = (context.clock.now(), context.clock.monotonic());
            self.seen().note(now, parts(broker, database, faults));
            sleep(POLL_INTERVAL).await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each part with its word. Faults are named while they last; a part without one is not.
fn parts(broker: bool, database: bool, faults: impl Iterator<Item = String>) -> BTreeMap<String, String> {
    let word = |works| if works { OK } else { ERROR };
    let faults = faults.take(NAMED).map(|part| (part, false));
    let parts = [("broker".to_owned(), broker), ("database".to_owned(), database)].into_iter().chain(faults);
    parts.map(|(part, works)| (part, word(works).to_owned())).collect()
}

impl Seen {
    fn note(&mut self, (time, now): (DateTime<Utc>, Duration), components: BTreeMap<String, String>) {
        let works = components.values().all(|word| word == OK);
        let status = if works { HealthStatus::Ok } else { HealthStatus::Degraded };
        if self.settled == Some(status) {
            self.candidate = None;
            return;
        }
        let candidate = self.candidate.take().filter(|(candidate, _)| candidate.status == status);
        let (candidate, since) = candidate.unwrap_or((HealthReport { since: time, status, components }, now));
        if now.saturating_sub(since) < HOLD {
            self.candidate = Some((candidate, since));
            return;
        }
        // The first status is not a change, but it may be better than the last one published.
        if self.settled.is_some() || status == HealthStatus::Ok {
            self.unpublished.push_back(candidate);
            let dropped = self.unpublished.len().saturating_sub(WAITING);
            self.unpublished.drain(..dropped);
        }
        self.settled = Some(status);
    }
}

impl Worker for HealthReporter {
    const NAME: &'static str = "health-reporter";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let next = self.0.seen().unpublished.front().cloned();
        let Some(report) = next else { return Ok(false) };
        let key = format!("report {}", report.since.to_rfc3339());
        let command = HealthCommand::Report(report);
        context.send_if_still_due::<Health>(Self::NAME, HEALTH, &key, &command).await?;
        self.0.seen().unpublished.pop_front();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published changes, given for how many seconds the broker worked or not.
    fn published(broker: &[(i64, bool)]) -> Vec<(i64, HealthStatus)> {
        let mut seen = Seen::default();
        let mut now = 0;
        for (seconds, works) in broker {
            for _ in 0..*seconds {
                let moment = Duration::from_secs(now);
                let moment = (DateTime::UNIX_EPOCH + moment, moment);
                seen.note(moment, parts(*works, true, std::iter::empty()));
                now += 1;
            }
        }
        seen.unpublished.iter().map(|report| (report.since.timestamp(), report.status)).collect()
    }

    use HealthStatus::{Degraded, Ok};

    /// The change was not reported for as long as the clock was set back.
    #[test]
    fn a_change_is_reported_although_the_clock_was_set_back() {
        let mut seen = Seen::default();
        for seconds in 0..30 {
            let moment = Duration::from_secs(seconds);
            let shown = DateTime::UNIX_EPOCH + if seconds < 12 { Duration::from_secs(3600) } else { moment };
            seen.note((shown, moment), parts(seconds < 10, true, std::iter::empty()));
        }
        assert_eq!(seen.unpublished.iter().map(|report| report.status).collect::<Vec<_>>(), [Ok, Degraded]);
    }

    #[test]
    fn a_status_counts_when_it_has_held_for_five_seconds() {
        assert_eq!(published(&[(10, true), (6, false), (6, true)]), [(0, Ok), (10, Degraded), (16, Ok)]);
        assert_eq!(published(&[(10, true), (5, false), (10, true)]), [(0, Ok)], "it was back too soon");
        assert_eq!(published(&[(10, true), (3, false), (1, true), (4, false), (9, true)]), [(0, Ok)]);
    }

    #[test]
    fn every_fault_makes_the_service_degraded_and_is_named() {
        let mut seen = Seen::default();
        for (second, fault) in (0..20).map(|second| (second, (10..16).contains(&second))) {
            let faults = fault.then(|| "disk.press".to_owned()).into_iter();
            let moment = Duration::from_secs(second);
            seen.note((DateTime::UNIX_EPOCH + moment, moment), parts(true, true, faults));
        }
        let published: Vec<_> =
            seen.unpublished.iter().map(|report| (report.status, report.components.len())).collect();
        assert_eq!(published, [(Ok, 2), (Degraded, 3)]);
        assert_eq!(seen.unpublished[1].components["disk.press"], "error");
    }

    #[test]
    fn a_bad_status_at_the_start_is_not_published() {
        assert_eq!(published(&[(20, false)]), []);
        assert_eq!(published(&[(20, false), (10, true)]), [(20, Ok)]);
    }
}
