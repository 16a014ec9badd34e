use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};

use super::{Condition, RuleAction, RuleChanges, RuleSpec};
use crate::{automation::Reading, kernel::UserId};

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
    /// Remove it. Values that arrived before are still judged.
    Delete {
        /// End of the datapoint log; filled in by the command handler.
        #[serde(default)]
        after: i64,
    },
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
    /// It is gone.
    RuleDeleted {
        /// Its name, which is free again.
        name: String,
        /// End of the datapoint log: values up to there are still judged.
        after: i64,
    },
}

impl DomainEvent for RuleEvent {
    fn event_type(&self) -> String {
        match self {
            Self::RuleCreated(_) => "rule_created",
            Self::RuleUpdated { .. } => "rule_updated",
            Self::RuleTriggered(_) => "rule_triggered",
            Self::RuleDeleted { .. } => "rule_deleted",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}
