//! Growing pauses with jitter.

use rand::Rng;
use std::time::Duration;

/// Doubles from `base` to `max`; each pause is between half and the whole of the step, so that agents that lost
/// the same gateway do not come back at the same moment.
#[derive(Debug)]
pub struct Backoff {
    base: Duration,
    max: Duration,
    failures: u32,
}

impl Backoff {
    /// Starts with a pause of at most `base`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max, failures: 0 }
    }

    /// Begins again with the first pause.
    pub fn reset(&mut self) {
        self.failures = 0;
    }

    /// How many pauses there were since the last reset.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// The next pause.
    pub fn next_pause(&mut self) -> Duration {
        let step = self.base.saturating_mul(1 << self.failures.min(16)).min(self.max);
        self.failures = self.failures.saturating_add(1);
        step.mul_f64(rand::rng().random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_limit_and_start_again_after_a_reset() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        for step in [1, 2, 4, 8, 16, 32, 60, 60] {
            let pause = backoff.next_pause().as_secs_f64();
            assert!((step as f64 / 2.0..=step as f64).contains(&pause), "{pause} for {step}");
        }
        backoff.reset();
        assert!(backoff.next_pause() <= Duration::from_secs(1));
    }
}
