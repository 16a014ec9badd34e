use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use signalbox_messaging::Waiting;

/// Messages that this process has seen in mailboxes of connected agents. Times are on the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Untaken(Mutex<HashMap<Waiting, Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    first: Duration,
    /// Since the last whole look at all mailboxes.
    is_new: bool,
}

impl Untaken {
    /// For how long `message`, which waits at `now`, has been seen.
    pub(super) fn time(&self, message: &Waiting, now: Duration) -> Duration {
        let mut messages = self.messages();
        let seen = messages.entry(message.clone()).or_insert(Seen { first: now, is_new: true });
        seen.is_new = true;
        now.saturating_sub(seen.first)
    }

    /// Ends a whole look at all mailboxes: messages that it has not seen were taken, or their agents went away.
    pub(super) fn end_look(&self) {
        self.messages().retain(|_, seen| std::mem::take(&mut seen.is_new));
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
    fn a_message_that_a_look_has_not_seen_is_forgotten() {
        let (untaken, second) = (Untaken::default(), Duration::from_secs(1));
        untaken.time(&message(1), second);
        untaken.end_look();
        assert_eq!(untaken.time(&message(1), second * 300), second * 299, "however long the look took");
        untaken.end_look();
        untaken.end_look();
        assert_eq!(untaken.time(&message(1), second * 301), Duration::ZERO);
    }
}
