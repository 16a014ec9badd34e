//! Rules that watch the values of channels, and what follows when they fire.

mod event_type;
mod reading;
mod rule;

pub use event_type::EventType;
pub use reading::{DatapointPlace, Reading};
pub use rule::{
    ActionType, Condition, Firing, History, Judge, NewRule, Operator, Phase, Rule, RuleAction, RuleChanges,
    RuleCommand, RuleEvent, RuleSpec,
};
