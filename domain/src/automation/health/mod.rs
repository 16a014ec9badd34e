mod events;

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

pub use self::events::{HealthCommand, HealthEvent, HealthEventKind};
use crate::kernel::{Decider, Rejection};

/// Whether the service works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthStatus {
    /// All parts do.
    #[default]
    Ok,
    /// A part does not.
    Degraded,
}

impl HealthStatus {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Degraded => "degraded",
        }
    }
}

/// How the service was at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthReport {
    /// When it became so.
    pub since: DateTime<Utc>,
    /// Altogether.
    pub status: HealthStatus,
    /// Its parts: `ok` or `error` each.
    pub components: BTreeMap<String, String>,
}

/// The service's health as last published. There is one aggregate.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Health {
    status: HealthStatus,
    since: Option<DateTime<Utc>>,
}

impl Decider for Health {
    const TYPE: &'static str = "health";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 1;
    type Command = HealthCommand;
    type Event = HealthEvent;

    fn decide(&self, HealthCommand::Report(report): HealthCommand) -> Result<Vec<HealthEvent>, Rejection> {
        let is_change = report.status != self.status && self.since.is_none_or(|since| report.since > since);
        let changed = is_change.then_some(HealthEvent::HealthChanged { previous: self.status, report });
        Ok(changed.into_iter().collect())
    }

    fn evolve(&mut self, HealthEvent::HealthChanged { report, .. }: HealthEvent) {
        (self.status, self.since) = (report.status, Some(report.since));
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn one_event_per_real_change_however_many_report_it() {
        use HealthStatus::{Degraded, Ok};
        let mut health = Health::default();
        let mut report = |seconds: i64, status| {
            let since = DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds);
            let report = HealthReport { since, status, components: BTreeMap::new() };
            let events = health.decide(HealthCommand::Report(report)).unwrap();
            events.iter().for_each(|event| health.evolve(event.clone()));
            events.len()
        };
        assert_eq!(report(1, Ok), 0, "it was well before");
        assert_eq!(report(2, Degraded), 1);
        assert_eq!(report(3, Degraded), 0, "another process saw it too");
        assert_eq!(report(9, Ok), 1);
        assert_eq!(report(3, Degraded), 0, "a late report of an older observation");
    }
}
