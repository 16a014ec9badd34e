use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    automation::Severity,
    kernel::{AlarmId, ContactId},
};

/// The step of an alarm that a contact is notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoticeKind {
    Firing,
    Cleared,
    /// It still fires, and no user has acknowledged it.
    Reminder,
    /// As a reminder, to the contacts of the rule's escalation.
    Escalation,
}

impl NoticeKind {
    pub const ALL: [Self; 4] = [Self::Firing, Self::Cleared, Self::Reminder, Self::Escalation];

    /// The kind that clients call `word`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }

    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Firing => "firing",
            Self::Cleared => "cleared",
            Self::Reminder => "reminder",
            Self::Escalation => "escalation",
        }
    }
}

/// A step of an alarm that a contact has not been sent yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    pub alarm: AlarmId,
    pub kind: NoticeKind,
    /// Counts the notices of this kind and alarm from 1; reminders are repeated.
    pub number: u32,
    pub severity: Severity,
    /// On the service's clock.
    pub arrived_on: DateTime<Utc>,
}

impl Notice {
    /// Quiet hours do not hold it back.
    pub(super) fn is_critical(&self) -> bool {
        self.severity == Severity::Critical
    }

    /// It does not wait for others.
    pub(super) fn is_urgent(&self) -> bool {
        self.is_critical() && self.kind == NoticeKind::Firing
    }
}

/// The outcome of all notices about an alarm in one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineKind {
    #[serde(rename = "firing")]
    Fired,
    Cleared,
    /// It was over before the message was composed.
    FiredAndCleared,
    Reminder,
    Escalation,
}

/// The line of a message about one alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmLine {
    pub alarm: AlarmId,
    pub kind: LineKind,
}

impl LineKind {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fired => "firing",
            Self::Cleared => "cleared",
            Self::FiredAndCleared => "fired_and_cleared",
            Self::Reminder => "reminder",
            Self::Escalation => "escalation",
        }
    }

    fn of(kind: NoticeKind) -> Self {
        match kind {
            NoticeKind::Firing => Self::Fired,
            NoticeKind::Cleared => Self::Cleared,
            NoticeKind::Reminder => Self::Reminder,
            NoticeKind::Escalation => Self::Escalation,
        }
    }

    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::FiredAndCleared, _)
            | (_, Self::FiredAndCleared)
            // A contact of the escalation learns of both by one message.
            | (Self::Fired | Self::Escalation, Self::Cleared)
            | (Self::Cleared, Self::Fired | Self::Escalation) => Self::FiredAndCleared,
            (Self::Cleared, _) | (_, Self::Cleared) => Self::Cleared,
            (Self::Fired, _) | (_, Self::Fired) => Self::Fired,
            (Self::Escalation, _) | (_, Self::Escalation) => Self::Escalation,
            (Self::Reminder, Self::Reminder) => Self::Reminder,
        }
    }
}

/// One line for each alarm, in the order of their first notices.
pub fn alarm_lines(notices: &[&Notice]) -> Vec<AlarmLine> {
    let mut lines: Vec<AlarmLine> = Vec::new();
    let mut index_of = BTreeMap::new();
    for notice in notices {
        let kind = LineKind::of(notice.kind);
        let index = *index_of.entry(notice.alarm).or_insert(lines.len());
        match lines.get_mut(index) {
            Some(line) => line.kind = line.kind.and(kind),
            None => lines.push(AlarmLine { alarm: notice.alarm, kind }),
        }
    }
    lines
}

/// The id of the message that sends these notices to this contact, for `Message-ID` and `webhook-id`. The order of the
/// notices does not matter. They must be stored as one message before it is sent, so that a repetition has them all.
pub fn message_id(contact: ContactId, notices: &[&Notice]) -> Uuid {
    let step = |notice: &&Notice| format!("{} {} {}", notice.alarm, notice.kind.as_str(), notice.number);
    let mut steps: Vec<String> = notices.iter().map(step).collect();
    steps.sort_unstable();
    Uuid::new_v5(&contact.0, steps.join("\n").as_bytes())
}
