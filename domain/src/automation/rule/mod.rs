//! A rule: the condition on a channel's values, what it does when it fires, and when it fired last.

mod decide;
mod events;
mod judge;
mod spec;
#[cfg(test)]
mod tests;

pub use decide::Rule;
pub use events::{Firing, NewRule, RuleCommand, RuleEvent};
pub use judge::{History, Judge, Phase};
pub use spec::{ActionType, Condition, Operator, RuleAction, RuleChanges, RuleSpec};
