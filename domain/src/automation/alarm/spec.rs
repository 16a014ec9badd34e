use chrono::TimeDelta;
use serde::{Deserialize, Serialize};

use crate::{
    automation::{
        NotificationChanges,
        rule::{Condition, Operator},
    },
    kernel::{ChannelId, Rejection, present},
};

/// Longest duration of an alarm's settings, in seconds: a year.
pub const MAX_SECONDS: u32 = 366 * 24 * 3600;
/// Longest window of a slope, in seconds: a day.
pub const MAX_RATE_WINDOW: u32 = 24 * 3600;

/// How bad an alarm is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    Info,
    #[default]
    Warning,
    Critical,
}

/// The settings that make a rule's condition a state. Their semantics are those of Prometheus' alerting rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AlarmSpec {
    /// How long the condition holds before the alarm fires.
    pub for_seconds: u32,
    /// How long the condition must not hold before the alarm is cleared.
    pub keep_firing_seconds: u32,
    /// Once firing, the alarm stays up to this value.
    pub clear_threshold: Option<f64>,
    /// An alarm fires when more than so long has passed since the last value.
    pub no_data_seconds: Option<u32>,
    /// The condition is on the slope per second of the values in this window.
    pub rate_window_seconds: Option<u32>,
    pub severity: Severity,
}

/// Changes of an alarm's settings; absent fields stay unchanged, `Some(None)` sets the default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AlarmChanges {
    /// Whether the rule has an alarm. A setting that is given says so, too.
    pub alarm: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub for_seconds: Option<Option<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub keep_firing_seconds: Option<Option<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub clear_threshold: Option<Option<f64>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub no_data_seconds: Option<Option<u32>>,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub rate_window_seconds: Option<Option<u32>>,
    pub severity: Option<Severity>,
}

/// All that an alarm is judged by: a rule's channel, condition and settings while the rule is enabled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AlarmTerms {
    pub channel: ChannelId,
    #[serde(flatten)]
    pub condition: Condition,
    pub alarm: AlarmSpec,
}

impl Severity {
    /// All of them, by rising severity.
    pub const ALL: [Self; 3] = [Self::Info, Self::Warning, Self::Critical];

    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The severity that clients call `word`.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == word)
    }
}

impl AlarmChanges {
    /// These changes, in a request that also has `notify`, whose fields may say that the rule has an alarm.
    pub fn with(self, notify: &NotificationChanges) -> Self {
        if notify.names_setting() { Self { alarm: Some(true), ..self } } else { self }
    }

    /// The settings after these changes of `before`; `None` for a rule without an alarm.
    ///
    /// # Errors
    /// A [`Rejection`] when a severity is given to a rule without an alarm.
    pub fn apply(self, before: Option<AlarmSpec>) -> Result<Option<AlarmSpec>, Rejection> {
        let names_setting =
            [self.for_seconds, self.keep_firing_seconds, self.no_data_seconds, self.rate_window_seconds]
                .into_iter()
                .flatten()
                .any(|value| value.is_some())
                || self.clear_threshold.flatten().is_some();
        let is_alarm = names_setting || self.alarm.unwrap_or(before.is_some());
        if !is_alarm {
            let fault = "is a setting of alarms: give alarm, too";
            return if self.severity.is_some() && before.is_none() {
                Err(Rejection::field("severity", fault))
            } else {
                Ok(None)
            };
        }
        let before = before.unwrap_or_default();
        let seconds =
            |new: Option<Option<u32>>, before: u32| new.map_or(before, |seconds| seconds.unwrap_or_default());
        Ok(Some(AlarmSpec {
            for_seconds: seconds(self.for_seconds, before.for_seconds),
            keep_firing_seconds: seconds(self.keep_firing_seconds, before.keep_firing_seconds),
            clear_threshold: self.clear_threshold.unwrap_or(before.clear_threshold),
            no_data_seconds: self.no_data_seconds.unwrap_or(before.no_data_seconds),
            rate_window_seconds: self.rate_window_seconds.unwrap_or(before.rate_window_seconds),
            severity: self.severity.unwrap_or(before.severity),
        }))
    }

    /// The changes that make `after` out of any other settings.
    pub fn all_of(after: Option<AlarmSpec>) -> Self {
        let Some(spec) = after else { return Self { alarm: Some(false), ..Self::default() } };
        Self {
            alarm: Some(true),
            for_seconds: Some(Some(spec.for_seconds)),
            keep_firing_seconds: Some(Some(spec.keep_firing_seconds)),
            clear_threshold: Some(spec.clear_threshold),
            no_data_seconds: Some(spec.no_data_seconds),
            rate_window_seconds: Some(spec.rate_window_seconds),
            severity: Some(spec.severity),
        }
    }
}

impl AlarmSpec {
    /// Checks the settings of a rule with `condition`.
    ///
    /// # Errors
    /// A [`Rejection`] that names the field.
    pub(in crate::automation) fn validate(&self, condition: &Condition) -> Result<(), Rejection> {
        let durations = [
            ("for_seconds", Some(self.for_seconds), 0, MAX_SECONDS),
            ("keep_firing_seconds", Some(self.keep_firing_seconds), 0, MAX_SECONDS),
            ("no_data_seconds", self.no_data_seconds, 1, MAX_SECONDS),
            ("rate_window_seconds", self.rate_window_seconds, 1, MAX_RATE_WINDOW),
        ];
        for (field, seconds, least, most) in durations {
            if seconds.is_some_and(|seconds| !(least..=most).contains(&seconds)) {
                return Err(Rejection::field(field, format!("must be between {least} and {most}")));
            }
        }
        self.clear_threshold.map_or(Ok(()), |clear| validate_clear_threshold(clear, condition))
    }

    pub(super) fn hold(&self) -> TimeDelta {
        seconds(self.for_seconds)
    }

    pub(super) fn keep_firing(&self) -> TimeDelta {
        seconds(self.keep_firing_seconds)
    }

    pub(super) fn no_data(&self) -> Option<TimeDelta> {
        self.no_data_seconds.map(seconds)
    }

    /// Length of the window on whose slope the condition is.
    pub fn rate_window(&self) -> Option<TimeDelta> {
        self.rate_window_seconds.map(seconds)
    }
}

impl AlarmTerms {
    /// Whether a firing alarm stays with `value`.
    pub(super) fn stays(&self, value: f64) -> bool {
        match (self.alarm.clear_threshold, self.condition.operator) {
            (Some(clear), Operator::Gt | Operator::Gte) => value >= clear,
            (Some(clear), Operator::Lt | Operator::Lte) => value <= clear,
            _ => self.condition.holds(value),
        }
    }

    /// Whether alarms that began under these terms go on under `other`.
    pub(super) fn has_condition_of(&self, other: &Self) -> bool {
        self.channel == other.channel
            && self.condition == other.condition
            && self.alarm.clear_threshold == other.alarm.clear_threshold
            && self.alarm.rate_window_seconds == other.alarm.rate_window_seconds
    }
}

fn validate_clear_threshold(clear: f64, condition: &Condition) -> Result<(), Rejection> {
    let refused = |fault: &str| Err(Rejection::field("clear_threshold", fault));
    if !clear.is_finite() {
        return refused("must be a finite number");
    }
    match condition.operator {
        Operator::Gt | Operator::Gte if clear > condition.threshold => {
            refused("must not be greater than threshold")
        }
        Operator::Lt | Operator::Lte if clear < condition.threshold => {
            refused("must not be less than threshold")
        }
        Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => Ok(()),
        Operator::Eq | Operator::Between | Operator::NotBetween => {
            refused("is for the operators gt, gte, lt and lte")
        }
    }
}

fn seconds(seconds: u32) -> TimeDelta {
    TimeDelta::seconds(i64::from(seconds))
}
