//! The only source of time and of new ids, so that tests and replay control both.

use std::{
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use uuid::{NoContext, Timestamp, Uuid};

/// Origin of this process's monotonic time.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A clock that is passed to every part that needs the time. Clones share it.
#[derive(Debug, Clone)]
pub struct Clock(Source);

#[derive(Debug, Clone)]
enum Source {
    System,
    /// The machine's clock with this error.
    Shifted(Arc<Mutex<TimeDelta>>),
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

    /// The machine's clock, wrong by `error`, for tests of wrong clocks.
    pub fn shifted(error: TimeDelta) -> Self {
        Self(Source::Shifted(Arc::new(Mutex::new(error))))
    }

    /// Whether it is moved by [`Clock::advance`] alone.
    pub fn is_manual(&self) -> bool {
        matches!(self.0, Source::Manual(_))
    }

    /// The present time, in UTC, in whole microseconds: the database stores no more, and would round up to a future
    /// time.
    pub fn now(&self) -> DateTime<Utc> {
        let now = match &self.0 {
            #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine")]
            Source::System => Utc::now(),
            #[expect(clippy::disallowed_methods, reason = "this is the one place that asks the machine")]
            Source::Shifted(error) => Utc::now() + *error.lock().unwrap_or_else(PoisonError::into_inner),
            Source::Manual(time) => *time.lock().unwrap_or_else(PoisonError::into_inner),
        };
        now.trunc_subsecs(6)
    }

    /// Time since an arbitrary moment, for lengths of time within this process: setting the machine's clock does not change
    /// it. A manual clock's is the one that it shows.
    pub fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::System | Source::Shifted(_) => START.elapsed(),
            Source::Manual(_) => (self.now() - DateTime::UNIX_EPOCH).to_std().unwrap_or_default(),
        }
    }

    /// The time of a manual clock, which replaces PostgreSQL's clock too; `None` if PostgreSQL's clock is used.
    pub fn manual_time(&self) -> Option<DateTime<Utc>> {
        self.is_manual().then(|| self.now())
    }

    /// Moves a manual clock forward by `delta`, or sets a shifted one forward or back; the machine's clock moves by itself.
    pub fn advance(&self, delta: TimeDelta) {
        match &self.0 {
            Source::System => {}
            Source::Shifted(error) => *error.lock().unwrap_or_else(PoisonError::into_inner) += delta,
            Source::Manual(time) => *time.lock().unwrap_or_else(PoisonError::into_inner) += delta,
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
    fn a_manual_clock_moves_only_when_set() {
        let clock = Clock::manual(DateTime::UNIX_EPOCH);
        assert_eq!(clock.now(), DateTime::UNIX_EPOCH);
        clock.clone().advance(TimeDelta::seconds(3));
        assert_eq!(clock.now().timestamp(), 3);
        assert_ne!(clock.new_id(), clock.new_id());
        assert_eq!(clock.monotonic(), Duration::from_secs(3));
    }

    #[test]
    fn setting_the_clock_does_not_change_monotonic_time() {
        let clock = Clock::shifted(TimeDelta::hours(1));
        let (wall, monotonic) = (clock.now(), clock.monotonic());
        clock.advance(TimeDelta::hours(-1));
        assert!(clock.now() < wall);
        assert!(clock.monotonic() >= monotonic && clock.monotonic() < monotonic + Duration::from_secs(60));
        assert_eq!(clock.manual_time(), None);
    }
}
