//! Tells when the service becomes worse or better.
//!
//! Every process that runs workers watches all the time, also while it can tell nobody; one of them tells, by a lease. A status
//! counts when it has held for 5 s, so that a restart of a part is no news. What was seen while bus or database were away is
//! told when they are back, with the time when it was seen. Several processes may tell the same: the aggregate takes
//! the first. If the process dies, what it had seen and not told is lost; the next one tells how things are now.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use signalbox_domain::automation::{Health, HealthCommand, HealthReport, HealthStatus};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use crate::{Context, Worker, WorkerError};

/// How often it looks.
const LOOK: Duration = Duration::from_millis(500);
/// A part that does not answer for so long does not work.
const PATIENCE: Duration = Duration::from_secs(1);
/// So long a status has to hold.
const HOLD: TimeDelta = TimeDelta::seconds(5);
/// Changes that wait to be told; the oldest are forgotten.
const WAITING: usize = 64;
/// The service has one health.
const HEALTH: Uuid = Uuid::from_u128(0x5197_a1b0_0000_8000_8000_0000_0000_0001);

/// What a process has seen; the reporter and the observer share it.
#[derive(Debug, Clone, Default)]
pub struct HealthWatch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The last status that has held.
    settled: Option<HealthStatus>,
    /// One that differs, and has not held long enough yet.
    candidate: Option<HealthReport>,
    untold: VecDeque<HealthReport>,
}

/// The reporter.
#[derive(Debug)]
pub struct HealthReporter(pub HealthWatch);

impl HealthWatch {
    /// Looks for ever.
    pub async fn observe(&self, context: &Context) {
        loop {
            let asked = sqlx::query("SELECT 1").execute(&context.pool);
            let database = matches!(timeout(PATIENCE, asked).await, Ok(Ok(_)));
            let broker = context.bus.is_connected();
            self.seen().note(context.clock.now(), [("broker", broker), ("database", database)]);
            sleep(LOOK).await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn note(&mut self, now: DateTime<Utc>, parts: [(&str, bool); 2]) {
        let works = parts.iter().all(|(_, works)| *works);
        let status = if works { HealthStatus::Ok } else { HealthStatus::Degraded };
        if self.settled == Some(status) {
            self.candidate = None;
            return;
        }
        let word = |works| if works { "ok" } else { "error" };
        let components = BTreeMap::from(parts.map(|(part, works)| (part.to_owned(), word(works).to_owned())));
        let candidate = self.candidate.take().filter(|candidate| candidate.status == status);
        let candidate = candidate.unwrap_or(HealthReport { since: now, status, components });
        if now - candidate.since < HOLD {
            self.candidate = Some(candidate);
            return;
        }
        // How it is at the start is no change, but it may be better than what was told last.
        if self.settled.is_some() || status == HealthStatus::Ok {
            self.untold.push_back(candidate);
            let forgotten = self.untold.len().saturating_sub(WAITING);
            self.untold.drain(..forgotten);
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
        let next = self.0.seen().untold.front().cloned();
        let Some(report) = next else { return Ok(false) };
        let key = format!("report {}", report.since.to_rfc3339());
        let command = HealthCommand::Report(report);
        context.send_if_still_due::<Health>(Self::NAME, HEALTH, &key, &command).await?;
        self.0.seen().untold.pop_front();
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was told of, when for each second there is whether the broker worked.
    fn told(broker: &[(i64, bool)]) -> Vec<(i64, HealthStatus)> {
        let mut seen = Seen::default();
        let mut now = 0;
        for (seconds, works) in broker {
            for _ in 0..*seconds {
                let time = DateTime::UNIX_EPOCH + TimeDelta::seconds(now);
                seen.note(time, [("broker", *works), ("database", true)]);
                now += 1;
            }
        }
        seen.untold.iter().map(|report| (report.since.timestamp(), report.status)).collect()
    }

    use HealthStatus::{Degraded, Ok};

    #[test]
    fn a_status_counts_when_it_has_held_for_five_seconds() {
        assert_eq!(told(&[(10, true), (6, false), (6, true)]), [(0, Ok), (10, Degraded), (16, Ok)]);
        assert_eq!(told(&[(10, true), (5, false), (10, true)]), [(0, Ok)], "it was back too soon");
        assert_eq!(told(&[(10, true), (3, false), (1, true), (4, false), (9, true)]), [(0, Ok)]);
    }

    #[test]
    fn how_it_is_at_the_start_is_no_change_for_the_worse() {
        assert_eq!(told(&[(20, false)]), []);
        assert_eq!(told(&[(20, false), (10, true)]), [(20, Ok)]);
    }
}
