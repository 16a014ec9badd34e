//! Notifications of alarms: when a message to a contact is due, its id, its line about each alarm,
//! and the summary of an alarm. These rules do not send.

mod grouping;
mod notice;
mod quiet_hours;
mod spec;
mod summary;
#[cfg(test)]
mod tests;

pub use grouping::{GROUP_INTERVAL, Grouping, MESSAGE_INTERVAL};
pub use notice::{AlarmLine, LineKind, Notice, NoticeKind, alarm_lines, message_id};
pub use quiet_hours::{InvalidQuietHours, QuietHours};
pub use spec::{NotificationChanges, NotificationSpec};
pub use summary::{MAX_SUMMARY, SummaryTemplate, SummaryValues};

/// The limits that the rules above keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::spec::{MAX_CONTACTS, MIN_REPETITION};
}
