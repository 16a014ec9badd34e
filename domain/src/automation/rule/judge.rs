use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::{Condition, RuleSpec};
use crate::automation::DatapointPlace;

/// Former shapes of a rule that are remembered; evaluation is never behind by that many changes.
const MAX_PHASES: usize = 16;

/// What a rule was for values up to a row of the datapoint log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The last row that it counts for.
    pub until: i64,
    /// What it was.
    #[serde(flatten)]
    pub spec: RuleSpec,
}

impl Phase {
    /// Adds to `earlier` that a rule was `spec` for values up to the row `until`.
    pub fn remember(earlier: &mut Vec<Self>, spec: RuleSpec, until: i64) {
        if earlier.len() == MAX_PHASES {
            earlier.remove(0);
        }
        earlier.push(Self { until, spec });
    }
}

/// How far a rule has looked, and when it fired last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// What is not behind this place does not matter any more: it came in before there was the rule, or up to where it
    /// fired last.
    pub seen: DatapointPlace,
    /// When the value came in on which it fired last.
    pub last_triggered_at: Option<DateTime<Utc>>,
}

/// Decides on which values a rule fires. Live evaluation, the aggregate and the back-test all use it, so they agree.
///
/// Values are given in the order of their places, and each is judged by the rule as it was when the value came in. What is
/// not behind the last firing is passed over, so giving values again fires nothing twice. Time is the time at which
/// values came in: a device whose clock is wrong silences nothing.
#[derive(Debug, Clone)]
pub struct Judge {
    /// Up to which row which terms count, in order.
    earlier: Vec<(i64, Terms)>,
    now: Terms,
    history: History,
}

#[derive(Debug, Clone, Copy)]
struct Terms {
    condition: Condition,
    cooldown: TimeDelta,
    enabled: bool,
}

impl Judge {
    /// Judges by `spec`, and what came in before it by what was `earlier`, going on from `history`.
    pub fn new(spec: &RuleSpec, earlier: &[Phase], history: History) -> Self {
        let terms = |phase: &Phase| {
            let terms = Terms::of(&phase.spec);
            // A rule that is moved to another channel begins there, and is done with what it watched before.
            (phase.until, Terms { enabled: terms.enabled && phase.spec.channel == spec.channel, ..terms })
        };
        Self {
            earlier: earlier.iter().filter(|phase| phase.until > history.seen.position).map(terms).collect(),
            now: Terms::of(spec),
            history,
        }
    }

    /// Whether the rule fires on `value`, which is at `place` and came in at `at`; if so, that is remembered.
    pub fn fires(&mut self, place: DatapointPlace, value: f64, at: DateTime<Utc>) -> bool {
        let History { seen, last_triggered_at } = self.history;
        let Terms { condition, cooldown, enabled } = self.terms_for(place.position);
        let is_rested = || cooldown.is_zero() || last_triggered_at.is_none_or(|last| at - last >= cooldown);
        let fires = enabled && condition.holds(value) && place > seen && is_rested();
        if fires {
            self.history = History { seen: place, last_triggered_at: Some(at) };
        }
        fires
    }

    /// Whether it may fire on something behind the row `position`.
    pub fn is_awake_behind(&self, position: i64) -> bool {
        self.now.enabled || self.earlier.iter().any(|(until, terms)| terms.enabled && *until > position)
    }

    fn terms_for(&self, position: i64) -> Terms {
        self.earlier.iter().find(|(until, _)| position <= *until).map_or(self.now, |(_, terms)| *terms)
    }
}

impl Terms {
    fn of(spec: &RuleSpec) -> Self {
        let cooldown = TimeDelta::seconds(i64::from(spec.cooldown_seconds));
        Self { condition: spec.condition, cooldown, enabled: spec.enabled }
    }
}
