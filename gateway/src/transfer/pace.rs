use std::time::Duration;

use tokio::time::Instant;

/// Messages that one socket may send in a second on average; others stay in the connection.
const MESSAGES_PER_SECOND: u32 = 200;
/// Messages that may arrive at once.
const BURST: u32 = 1000;
/// A long message counts as several.
const BYTES_PER_MESSAGE: usize = 16 * 1024;

/// How fast the messages of one socket are read.
///
/// Nothing is refused: a sender that is too fast is read more slowly, until its connection has no room for more. The
/// agents of the file family send at most two messages a second for each transfer.
#[derive(Debug)]
pub(super) struct Pace {
    /// When all that arrived would have arrived at the permitted rate.
    earned: Instant,
}

impl Default for Pace {
    fn default() -> Self {
        Self { earned: Instant::now() }
    }
}

impl Pace {
    /// A message of `bytes` has arrived.
    pub(super) fn count(&mut self, bytes: usize) {
        self.count_at(bytes, Instant::now());
    }

    /// Whether the next message has to wait until [`Self::resumes_at`].
    pub(super) fn is_exceeded(&self) -> bool {
        self.resumes_at() > Instant::now()
    }

    /// When the next message may be read.
    pub(super) fn resumes_at(&self) -> Instant {
        self.earned.checked_sub(interval() * BURST).unwrap_or(self.earned)
    }

    fn count_at(&mut self, bytes: usize, now: Instant) {
        let messages = u32::try_from(1 + bytes / BYTES_PER_MESSAGE).unwrap_or(u32::MAX);
        self.earned = self.earned.max(now) + interval() * messages;
    }
}

fn interval() -> Duration {
    Duration::from_secs(1) / MESSAGES_PER_SECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_a_flood_waits_for_its_excess() {
        let begun = Instant::now();
        let mut pace = Pace { earned: begun };
        (0..BURST).for_each(|_| pace.count_at(100, begun));
        assert!(pace.resumes_at() <= begun);
        (0..MESSAGES_PER_SECOND).for_each(|_| pace.count_at(100, begun));
        assert_eq!(pace.resumes_at() - begun, Duration::from_secs(1));
        // An idle time of any length earns one burst.
        let later = begun + Duration::from_secs(3600);
        (0..BURST).for_each(|_| pace.count_at(100, later));
        assert!(pace.resumes_at() <= later);
    }

    #[test]
    fn long_messages_count_by_their_length() {
        let begun = Instant::now();
        let mut pace = Pace { earned: begun };
        (0..BURST / 64).for_each(|_| pace.count_at(1 << 20, begun));
        assert!(pace.resumes_at() > begun - interval() * 64);
    }
}
