use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::{Condition, RuleSpec};
use crate::automation::DatapointPlace;

/// Limit of former specifications that are kept; evaluation never lags by that many changes.
const MAX_PHASES: usize = 16;

/// A rule's specification for values up to a row of the datapoint log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// The last row that it counts for.
    pub until: i64,
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
    /// Earlier values need no evaluation: they arrived before the rule was created, or before the value that fired it
    /// last.
    pub seen: DatapointPlace,
    /// Arrival time of the value that fired it last.
    pub last_triggered_at: Option<DateTime<Utc>>,
}

/// Decides on which values a rule without an alarm fires. Live evaluation, the aggregate and the back-test all use it, so
/// they agree.
///
/// Values are given in the order of their places, and each is judged by the specification in force when it arrived.
/// Values up to the last firing are skipped, so giving values again fires nothing twice. Cooldowns use arrival times,
/// so a device whose clock is wrong suppresses nothing.
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
    /// Judges by `spec`, and earlier values by `earlier`, continuing from `history`.
    pub fn new(spec: &RuleSpec, earlier: &[Phase], history: History) -> Self {
        let terms = |phase: &Phase| {
            let terms = Terms::of(&phase.spec);
            // A rule that is moved to another channel starts there and drops the unevaluated values of the old one.
            (phase.until, Terms { enabled: terms.enabled && phase.spec.channel == spec.channel, ..terms })
        };
        Self {
            earlier: earlier.iter().filter(|phase| phase.until > history.seen.position).map(terms).collect(),
            now: Terms::of(spec),
            history,
        }
    }

    /// Whether the rule fires on `value`, which is at `place` and arrived at `at`; if so, the firing is recorded.
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

    /// Whether it may fire on values after the row `position`.
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
        Self { condition: spec.condition, cooldown, enabled: spec.enabled && spec.alarm.is_none() }
    }
}
