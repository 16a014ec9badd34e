//! Leaves a service alone that fails again and again: callers are answered at once, and it can recover.
//!
//! After [`FAILURES`] consecutive failures it is open and rejects calls. After [`RETRY_DELAY`] one trial call is
//! allowed; if it succeeds, the breaker closes, otherwise it stays open for another delay.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Failures in a row after which it opens.
pub(super) const FAILURES: u32 = 5;
/// How long it stays open before one call may try.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Breaker {
    name: &'static str,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// One call is trying.
    Trying,
}

/// Leave to make one call.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    breaker: &'a Breaker,
    tries: bool,
    settled: bool,
}

impl Breaker {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    /// Leave to make a call; none while it is open.
    pub(super) fn admit(&self) -> Option<Permit<'_>> {
        let mut state = self.state();
        let tries = match *state {
            State::Closed { .. } => false,
            State::Open { until } if Instant::now() >= until => {
                *state = State::Trying;
                true
            }
            State::Open { .. } | State::Trying => return None,
        };
        Some(Permit { breaker: self, tries, settled: false })
    }

    /// Whether calls are refused.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open { until } if Instant::now() < until)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self, state: &mut State) {
        tracing::warn!(
            service = self.name,
            retry_delay_seconds = RETRY_DELAY.as_secs(),
            "circuit breaker opened after repeated failures"
        );
        *state = State::Open { until: Instant::now() + RETRY_DELAY };
    }
}

impl Permit<'_> {
    /// Reports the outcome of the call.
    pub(super) fn settle(mut self, worked: bool) {
        self.settled = true;
        let mut state = self.breaker.state();
        match (*state, worked) {
            (State::Trying, true) if self.tries => {
                tracing::info!(service = self.breaker.name, "a service works again");
                *state = State::Closed { failures: 0 };
            }
            (State::Trying, false) if self.tries => self.breaker.open(&mut state),
            (State::Closed { .. }, true) => *state = State::Closed { failures: 0 },
            (State::Closed { failures }, false) if failures + 1 >= FAILURES => self.breaker.open(&mut state),
            (State::Closed { failures }, false) => *state = State::Closed { failures: failures + 1 },
            // A call from before it opened says nothing about now.
            _ => {}
        }
    }
}

impl Drop for Permit<'_> {
    /// A try that was given up leaves the next one to somebody else.
    fn drop(&mut self) {
        if self.tries && !self.settled {
            *self.breaker.state() = State::Open { until: Instant::now() };
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn fail(breaker: &Breaker, times: u32) {
        (0..times).for_each(|_| breaker.admit().unwrap().settle(false));
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_one_call_tries_again() {
        let breaker = Breaker::new("test");
        fail(&breaker, FAILURES - 1);
        breaker.admit().unwrap().settle(true);
        fail(&breaker, FAILURES - 1);
        assert!(!breaker.is_open());
        fail(&breaker, 1);
        assert!(breaker.is_open() && breaker.admit().is_none());
        advance(RETRY_DELAY).await;
        let trying = breaker.admit().unwrap();
        assert!(breaker.admit().is_none());
        trying.settle(false);
        assert!(breaker.admit().is_none());
        advance(RETRY_DELAY).await;
        breaker.admit().unwrap().settle(true);
        fail(&breaker, FAILURES - 1);
        assert!(breaker.admit().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_try_that_is_given_up_does_not_keep_it_shut_for_good() {
        let breaker = Breaker::new("test");
        let late = breaker.admit().unwrap();
        fail(&breaker, FAILURES);
        late.settle(true);
        assert!(breaker.is_open());
        advance(RETRY_DELAY).await;
        drop(breaker.admit().unwrap());
        assert!(breaker.admit().is_some());
    }
}
