use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::{Condition, RuleSpec};
use crate::automation::DatapointPlace;

/// How far a rule has looked, and when it fired last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// What is not behind this place does not matter any more: it came in before the rule began to watch, or up to where
    /// it fired last.
    pub seen: DatapointPlace,
    /// When the value came in on which it fired last.
    pub last_triggered_at: Option<DateTime<Utc>>,
}

/// Decides on which values a rule fires. Live evaluation, the aggregate and the back-test all use it, so they agree.
///
/// Values are given in the order of their places. What is not behind the last firing is passed over, so giving them
/// again fires nothing twice. Time is the time at which values came in: a device whose clock is wrong silences nothing.
#[derive(Debug, Clone, Copy)]
pub struct Judge {
    condition: Condition,
    cooldown: TimeDelta,
    enabled: bool,
    history: History,
}

impl Judge {
    /// Judges by `spec`, going on from `history`.
    pub fn new(spec: &RuleSpec, history: History) -> Self {
        Self {
            condition: spec.condition,
            cooldown: TimeDelta::seconds(i64::from(spec.cooldown_seconds)),
            enabled: spec.enabled,
            history,
        }
    }

    /// Whether `value` matters at all, whatever the rule has done before.
    pub fn matters(&self, value: f64) -> bool {
        self.enabled && self.condition.holds(value)
    }

    /// Whether the rule fires on `value`, which is at `place` and came in at `at`; if so, that is remembered.
    pub fn fires(&mut self, place: DatapointPlace, value: f64, at: DateTime<Utc>) -> bool {
        let fires = self.matters(value) && place > self.history.seen && self.is_rested(at);
        if fires {
            self.history = History { seen: place, last_triggered_at: Some(at) };
        }
        fires
    }

    /// What it has seen.
    pub fn history(&self) -> History {
        self.history
    }

    fn is_rested(&self, at: DateTime<Utc>) -> bool {
        self.cooldown.is_zero()
            || self.history.last_triggered_at.is_none_or(|last| at - last >= self.cooldown)
    }
}
