use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signalbox_messaging::Waiting;

/// A message that was not seen for so long is not remembered: it was taken, or its agent went away.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Messages that this process has seen in mailboxes of connected agents. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Untaken(Mutex<HashMap<Waiting, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    first: Duration,
    last: Duration,
}

impl Untaken {
    /// For how long `message`, which waits at `now`, has been seen.
    pub(super) fn time(&self, message: &Waiting, now: Duration) -> Duration {
        let mut messages = self.messages();
        let seen = messages.entry(message.clone()).or_insert(Seen { first: now, last: now });
        seen.last = now;
        now.saturating_sub(seen.first)
    }

    /// Forgets what was not seen for a while before `now`.
    pub(super) fn forget(&self, now: Duration) {
        self.messages().retain(|_, seen| now.saturating_sub(seen.last) < FORGOTTEN);
    }

    fn messages(&self) -> MutexGuard<'_, HashMap<Waiting, Seen>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use signalbox_messaging::{Mail, MailMessage};

    use super::*;

    fn message(id: i64) -> Waiting {
        let message = MailMessage { kind: "transfer_request".to_owned(), data: Value::Null };
        Waiting::from(&Mail { id, key: "transfer.1.1.upload".to_owned(), message })
    }

    #[test]
    fn a_message_that_was_posted_anew_is_another() {
        let (untaken, second) = (Untaken::default(), Duration::from_secs(1));
        assert_eq!(untaken.time(&message(1), second), Duration::ZERO);
        assert_eq!(untaken.time(&message(1), second * 50), second * 49);
        assert_eq!(untaken.time(&message(2), second * 50), Duration::ZERO);
    }

    #[test]
    fn a_message_that_is_not_seen_for_a_minute_is_forgotten() {
        let (untaken, second) = (Untaken::default(), Duration::from_secs(1));
        untaken.time(&message(1), second);
        untaken.time(&message(1), second * 30);
        untaken.forget(second * 89);
        assert_eq!(untaken.time(&message(1), second * 89), second * 88);
        untaken.forget(second * 149);
        assert_eq!(untaken.time(&message(1), second * 149), Duration::ZERO);
    }
}
