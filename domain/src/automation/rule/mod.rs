//! Rules: a condition on a channel's values, an action, and the history of firings.

mod decide;
mod events;
mod judge;
mod spec;
#[cfg(test)]
mod tests;

pub use decide::Rule;
pub use events::{FiredAlarm, Firing, NewRule, RuleCommand, RuleEvent, RuleEventKind, Silence};
pub use judge::{History, Judge, Phase};
pub use spec::{ActionType, Condition, Operator, RuleAction, RuleChanges, RuleSpec};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::spec::{MAX_COOLDOWN, MAX_NAME as RULE_NAME};
}
