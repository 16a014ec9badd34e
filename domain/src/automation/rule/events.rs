use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Condition, RuleAction, RuleChanges, RuleSpec};
use crate::{
    automation::{AlarmReason, Reading},
    kernel::{AlarmId, ContactId, UserId, event_kinds},
};

/// A new rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRule {
    pub owner: UserId,
    #[serde(flatten)]
    pub spec: RuleSpec,
    /// End of the datapoint log at creation; the rule watches later values. Filled in by the command handler.
    #[serde(default)]
    pub after: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum RuleCommand {
    /// Create it.
    Create(NewRule),
    /// Change the fields that are present.
    Change {
        /// The changes.
        changes: RuleChanges,
        /// End of the datapoint log; filled in by the command handler.
        #[serde(default)]
        after: i64,
    },
    /// Judge values, in the order of their arrival.
    Judge {
        /// The values.
        readings: Vec<Reading>,
    },
    /// Its alarm has started to fire: run the action, unless it ran within the cooldown.
    Act {
        /// The newest value, with the moment as its time.
        reading: Reading,
        alarm: FiredAlarm,
        /// The one that held, which may have been changed since. Workers of older releases do not say it.
        #[serde(default)]
        condition: Option<Condition>,
    },
    /// Hold back the webhooks of its alarms.
    Silence(Silence),
    /// Remove it. Values that arrived before are still judged.
    Delete {
        /// End of the datapoint log; filled in by the command handler.
        #[serde(default)]
        after: i64,
    },
}

/// An alarm that has started to fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FiredAlarm {
    pub alarm_id: AlarmId,
    pub reason: AlarmReason,
    /// The condition is on the slope per second in this window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_window_seconds: Option<u32>,
}

/// For how long the webhooks of a rule's alarms are held back, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// `None` ends it.
    pub until: Option<DateTime<Utc>>,
    pub comment: Option<String>,
}

/// A rule fired.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Firing {
    /// On which value. Rule and datapoint together are the firing's key: there is one of them at most.
    #[serde(flatten)]
    pub reading: Reading,
    /// The rule's name.
    pub rule_name: String,
    /// The condition that held.
    #[serde(flatten)]
    pub condition: Condition,
    pub action: RuleAction,
    /// The alarm by which it fired, which then is its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm: Option<FiredAlarm>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RuleEvent {
    /// A rule exists now.
    RuleCreated(NewRule),
    /// It is another one.
    RuleUpdated {
        /// Before.
        from: RuleSpec,
        /// Now.
        to: RuleSpec,
        /// End of the datapoint log: values up to there are judged by the previous specification.
        after: i64,
    },
    /// It fired.
    RuleTriggered(Firing),
    /// The webhooks of its alarms are held back, or no more.
    RuleSilenced(Silence),
    /// It is gone.
    RuleDeleted {
        /// Its name, which is free again.
        name: String,
        /// End of the datapoint log: values up to there are still judged.
        after: i64,
        /// The contacts that it named, which may be deleted now. Rules of older releases do not say them, and held no claims on them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        contacts: Vec<ContactId>,
    },
}

event_kinds!(RuleEvent, RuleEventKind {
    RuleCreated = "rule_created", "1";
    RuleUpdated = "rule_updated", "1";
    RuleTriggered = "rule_triggered", "1";
    RuleSilenced = "rule_silenced", "1";
    RuleDeleted = "rule_deleted", "1";
});
