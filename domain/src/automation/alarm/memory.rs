use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use super::AlarmTerms;
use crate::{automation::DatapointPlace, kernel::AlarmId};

/// Why an alarm began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmReason {
    /// The rule's condition holds.
    Condition,
    /// The channel is silent.
    NoData,
}

/// A value that a judge has taken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct JudgedValue {
    pub place: DatapointPlace,
    /// Day of its row in the datapoint log.
    pub day: NaiveDate,
    pub value: f64,
    /// Time of measurement.
    pub on: DateTime<Utc>,
    /// Time of arrival.
    pub arrived: DateTime<Utc>,
}

/// An alarm that is not cleared. Its times are those of the channel's clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct OpenAlarm {
    pub id: AlarmId,
    pub started_on: DateTime<Utc>,
    /// Absent while it is pending.
    pub fired_on: Option<DateTime<Utc>>,
    /// First moment since which the condition does not hold, while it keeps firing.
    pub released_on: Option<DateTime<Utc>>,
}

/// State of a judge, except the values of a slope.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmMemory {
    /// Version of the rule that the terms are from.
    pub version: i64,
    /// `None` while the rule has no alarm or is disabled.
    pub terms: Option<AlarmTerms>,
    /// When the rule was made, enabled or changed, on the service's clock.
    pub since: DateTime<Utc>,
    /// Place before those of the values of a slope.
    pub window_from: DatapointPlace,
    /// Values up to here were judged, or are older than the rule.
    pub seen: DatapointPlace,
    /// The newest value by time of measurement.
    pub newest: Option<JudgedValue>,
    pub by_condition: Option<OpenAlarm>,
    pub by_no_data: Option<OpenAlarm>,
}

/// Kind of a change of an alarm's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// It is pending.
    Started,
    Fired,
    Cleared,
}

/// A change of an alarm's state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AlarmStep {
    pub alarm: AlarmId,
    pub reason: AlarmReason,
    pub kind: StepKind,
    /// When it happens on the channel's clock.
    pub on: DateTime<Utc>,
    /// The same moment on the service's clock.
    pub at: DateTime<Utc>,
    /// When the alarm started.
    pub started_on: DateTime<Utc>,
    /// The newest judged value.
    pub newest: Option<JudgedValue>,
    pub terms: AlarmTerms,
}

impl AlarmReason {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Condition, Self::NoData];

    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Condition => "condition",
            Self::NoData => "no_data",
        }
    }
}

impl OpenAlarm {
    /// The newest of its times: no later step lies before it.
    pub(super) fn last_step(&self) -> DateTime<Utc> {
        self.fired_on.unwrap_or(self.started_on)
    }
}

impl AlarmMemory {
    /// Of a rule whose terms are not known yet; values up to the row `position` are not judged.
    pub fn blank(position: i64) -> Self {
        let seen = DatapointPlace::end_of(position);
        Self {
            version: 0,
            terms: None,
            since: DateTime::UNIX_EPOCH,
            window_from: seen,
            seen,
            newest: None,
            by_condition: None,
            by_no_data: None,
        }
    }
}
