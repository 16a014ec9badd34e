//! How fast the messages of a socket are read. A message over the limit waits in the connection, so nothing is lost and a
//! flood costs its sender, not the service.

use std::time::Duration;

use signalbox_clock::Clock;
use tokio::time::Instant;

use crate::{limits::Rate, services::limits::Limiter};

/// Reads at most so many messages per second, each of which also takes a token from a bucket of its sender.
pub(super) struct Pace {
    /// Time between two messages; zero where only the bucket limits.
    interval: Duration,
    /// How far ahead of the interval a burst may be.
    slack: Duration,
    bucket: String,
    rate: Rate,
    /// When the next message would be read if none came early.
    due: Instant,
    not_before: Instant,
}

impl Pace {
    pub(super) fn new(messages_per_second: Option<u32>, bucket: String, rate: Rate) -> Self {
        let interval =
            messages_per_second.map_or(Duration::ZERO, |count| Duration::from_secs(1) / count.max(1));
        let now = Instant::now();
        Self { interval, slack: Duration::from_secs(1), bucket, rate, due: now, not_before: now }
    }

    /// The next message is not read before this.
    pub(super) fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Counts a message that was read.
    pub(super) fn count(&mut self, clock: &Clock, limiter: &Limiter) {
        let wait = limiter.owe(&self.bucket, self.rate, clock.now());
        self.advance(Instant::now(), wait);
    }

    /// A message was read at `now`, and the bucket owes nothing after `wait`.
    fn advance(&mut self, now: Instant, wait: Duration) {
        self.due = self.due.max(now) + self.interval;
        let slack_used = self.due.checked_sub(self.slack).unwrap_or(now);
        self.not_before = slack_used.max(now + wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_minute: 60, burst: 1 };

    #[test]
    fn messages_of_a_flood_are_spread_after_a_burst_of_a_second() {
        let mut pace = Pace::new(Some(10), "b".to_owned(), RATE);
        let begun = pace.due;
        for _ in 0..10 {
            assert!(pace.not_before() <= begun);
            pace.advance(begun, Duration::ZERO);
        }
        // From now on each one is read when it is due, however early it was sent.
        for nth in 1..50 {
            pace.advance(pace.not_before(), Duration::ZERO);
            assert_eq!(pace.not_before(), begun + Duration::from_millis(100) * nth);
        }
    }

    #[test]
    fn an_empty_bucket_delays_the_next_message() {
        let mut pace = Pace::new(None, "b".to_owned(), RATE);
        let begun = pace.due;
        pace.advance(begun, Duration::from_secs(3));
        assert_eq!(pace.not_before(), begun + Duration::from_secs(3));
        pace.advance(begun + Duration::from_secs(3), Duration::ZERO);
        assert_eq!(pace.not_before(), begun + Duration::from_secs(3));
    }
}
