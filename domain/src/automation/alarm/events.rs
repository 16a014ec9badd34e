use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{AlarmReason, Severity, StepKind};
use crate::{
    automation::rule::Condition,
    kernel::{ChannelId, RuleId, UserId, event_kinds},
};

/// Longest comment, in characters.
pub const MAX_COMMENT: usize = 500;

/// State of an alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmState {
    /// The condition has not held for long enough.
    Pending,
    Firing,
    Cleared,
}

impl AlarmState {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Firing => "firing",
            Self::Cleared => "cleared",
        }
    }
}

/// An alarm that has started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewAlarm {
    pub rule_id: RuleId,
    /// The rule's name at that time.
    pub rule_name: String,
    pub channel_id: ChannelId,
    /// The channel's name at that time.
    pub channel_name: String,
    pub reason: AlarmReason,
    pub severity: Severity,
    /// The rule's condition.
    #[serde(flatten)]
    pub condition: Condition,
    /// The condition is on the slope per second in this window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_window_seconds: Option<u32>,
    /// When it started on the channel's clock.
    pub started_on: DateTime<Utc>,
    /// The newest judged value; absent when there was none.
    pub value: Option<f64>,
}

/// A change of state that a judge has decided.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AlarmMark {
    pub kind: StepKind,
    /// When it happened on the channel's clock.
    pub on: DateTime<Utc>,
    /// The newest judged value.
    pub value: Option<f64>,
    /// Whether the rule was silenced, so that no webhook is sent.
    pub silenced: bool,
}

/// A user has seen an alarm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acknowledged {
    pub user: UserId,
    pub comment: Option<String>,
    /// Whether the rule was silenced, so that no webhook is sent.
    pub silenced: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum AlarmCommand {
    /// Record what the judge has decided, and before that the alarm itself if it is new.
    Record {
        /// The alarm as it started.
        alarm: NewAlarm,
        /// Changes of its state, in order; those that have been recorded are skipped.
        marks: Vec<AlarmMark>,
    },
    /// A user has seen it.
    Acknowledge(Acknowledged),
    /// It is to be seen again.
    Unacknowledge,
    /// The silence of its rule has ended: publish it if it still fires.
    Announce,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AlarmEvent {
    /// An alarm exists. It is pending, unless it fires at once.
    AlarmStarted(NewAlarm),
    /// It fires.
    AlarmFired {
        /// When on the channel's clock.
        fired_on: DateTime<Utc>,
        value: Option<f64>,
        /// Whether no webhook is sent for it.
        silenced: bool,
    },
    /// Its cause is gone, or its rule does not ask for it any more.
    AlarmCleared {
        /// When on the channel's clock.
        cleared_on: DateTime<Utc>,
        value: Option<f64>,
        /// Whether no webhook is sent for it: for one that never fired, whose firing was not published, or whose rule is
        /// silenced.
        silenced: bool,
    },
    /// A user has seen it.
    AlarmAcknowledged(Acknowledged),
    /// It is to be seen again.
    AlarmUnacknowledged,
    /// It still fires after the silence in which it began to.
    AlarmAnnounced,
}

event_kinds!(AlarmEvent, AlarmEventKind {
    AlarmStarted = "alarm_started", "1";
    AlarmFired = "alarm_fired", "1";
    AlarmCleared = "alarm_cleared", "1";
    AlarmAcknowledged = "alarm_acknowledged", "1";
    AlarmUnacknowledged = "alarm_unacknowledged", "1";
    AlarmAnnounced = "alarm_announced", "1";
});
