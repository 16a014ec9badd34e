//! The only source of time and of new ids, so that tests and replay control both.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use uuid::{NoContext, Timestamp, Uuid};

/// A clock that is handed to whoever needs the time. Clones share it.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    Manual(Arc<Mutex<DateTime<Utc>>>),
}

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `start` until [`Clock::advance`] moves it.
    pub fn manual(start: DateTime<Utc>) -> Self {
        Self(Source::Manual(Arc::new(Mutex::new(start))))
    }

    /// The present time, in UTC, in whole microseconds: the database keeps no more, and would round to one that has not
    /// come yet.
    pub fn now(&self) -> DateTime<Utc> {
        let now = match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine")]
            Source::System => Utc::now(),
            Source::Manual(time) => *time.lock().unwrap_or_else(PoisonError::into_inner),
        };
        now.trunc_subsecs(6)
    }

    /// Moves a manual clock forward by `delta`; the machine's clock moves by itself.
    pub fn advance(&self, delta: TimeDelta) {
        if let Source::Manual(time) = &self.0 {
            *time.lock().unwrap_or_else(PoisonError::into_inner) += delta;
        }
    }

    /// A new UUIDv7 of the present time.
    pub fn new_id(&self) -> Uuid {
        let now = self.now();
        let seconds = u64::try_from(now.timestamp()).unwrap_or_default();
        Uuid::new_v7(Timestamp::from_unix(NoContext, seconds, now.timestamp_subsec_nanos()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_count_in_whole_microseconds() {
        let start = DateTime::from_timestamp_nanos(1_999);
        assert_eq!(Clock::manual(start).now(), DateTime::from_timestamp_nanos(1_000));
        assert_eq!(Clock::system().now().timestamp_subsec_nanos() % 1_000, 0);
    }

    #[test]
    fn a_manual_clock_moves_only_when_told() {
        let clock = Clock::manual(DateTime::UNIX_EPOCH);
        assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
        clock.clone().advance(TimeDelta::seconds(3));
        assert_eq!(clock.now().timestamp(), 3);
        assert_ne!(clock.new_id(), clock.new_id());
    }
}
