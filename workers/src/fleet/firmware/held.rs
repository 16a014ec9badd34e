use std::{
    sync::{
        OnceLock,
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
    /// When it was first hindered, on the monotonic clock.
    hindered: OnceLock<Duration>,
    is_hook_done: AtomicBool,
}

impl Held {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { claim: clock.new_id(), hindered: OnceLock::new(), is_hook_done: AtomicBool::new(false) }
    }

    /// The hook has succeeded. All that is left is to record it.
    pub(super) fn note_hook(&self) {
        self.is_hook_done.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_hook_done(&self) -> bool {
        self.is_hook_done.load(Ordering::Relaxed)
    }

    /// Whether an attempt that is hindered now is given up: not after the hook, which has brought the machine to the version.
    pub(super) fn is_over(&self, clock: &Clock) -> bool {
        let since = *self.hindered.get_or_init(|| clock.monotonic());
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
        assert!(!held.is_over(&clock), "it was fetched for two hours, and is hindered since now");
        clock.advance(TimeDelta::seconds(3599));
        assert!(!held.is_over(&clock));
        clock.advance(TimeDelta::seconds(1));
        assert!(held.is_over(&clock));
        held.note_hook();
        assert!(!held.is_over(&clock));
    }
}
