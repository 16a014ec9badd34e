//! Exponential backoff with jitter.

use rand::Rng;
use std::time::Duration;

/// Doubles from `base` to `max`; each delay is between half of the step and all of it, so that agents that lost the
/// same gateway do not reconnect at the same moment.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts with a delay of at most `base`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: 0 }
    }

    /// Starts again with the first delay.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// Number of delays since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn next_delay(&mut self) -> Duration {
        let step = self.base.saturating_mul(1 << self.failures.min(16)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        step.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_limit_and_restart_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for step in [1, 2, 4, 8, 16, 32, 60, 60] {
            let delay = backoff.next_delay().as_secs_f64();
            assert!((step as f64 / 2.0..=step as f64).contains(&delay), "{delay} for {step}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_secs(1));
    }
}
