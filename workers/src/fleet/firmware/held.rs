use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use signalbox_clock::Clock;
use uuid::Uuid;

/// An attempt that is hindered for longer fails, so that it does not keep other updates waiting.
const HINDERED_AT_MOST: Duration = Duration::from_secs(3600);

/// A claim of this process to the work on an update, and what only this process knows of it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) claim: Uuid,
    /// Since when it is hindered, on the monotonic clock.
    hindered: Mutex<Option<Duration>>,
    is_hook_done: AtomicBool,
}

impl Held {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { claim: clock.new_id(), hindered: Mutex::default(), is_hook_done: AtomicBool::new(false) }
    }

    /// The hook has succeeded. All that is left is to record it.
    pub(super) fn note_hook(&self) {
        self.is_hook_done.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_hook_done(&self) -> bool {
        self.is_hook_done.load(Ordering::Relaxed)
    }

    /// Notes that the attempt has gone on.
    pub(super) fn note_progress(&self) {
        *self.hindered.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Notes that the attempt is hindered, and returns whether it is given up: not after the hook, which has brought the machine
    /// to the version.
    pub(super) fn note_hindrance(&self, clock: &Clock) -> bool {
        let mut hindered = self.hindered.lock().unwrap_or_else(PoisonError::into_inner);
        let since = *hindered.get_or_insert_with(|| clock.monotonic());
        !self.is_hook_done() && clock.monotonic().saturating_sub(since) >= HINDERED_AT_MOST
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta};

    use super::*;

    #[test]
    fn a_hindered_attempt_ends_after_an_hour_unless_its_hook_ran() {
        let clock = Clock::manual(DateTime::UNIX_EPOCH);
        let held = Held::new(&clock);
        clock.advance(TimeDelta::hours(2));
        assert!(!held.note_hindrance(&clock), "it was fetched for two hours, and is hindered since now");
        clock.advance(TimeDelta::seconds(3599));
        assert!(!held.note_hindrance(&clock));
        clock.advance(TimeDelta::seconds(1));
        assert!(held.note_hindrance(&clock));
        held.note_progress();
        assert!(!held.note_hindrance(&clock), "it has gone on");
        clock.advance(TimeDelta::hours(1));
        assert!(held.note_hindrance(&clock));
        held.note_hook();
        assert!(!held.note_hindrance(&clock));
    }
}
