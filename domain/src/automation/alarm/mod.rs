//! Alarms: a rule's condition as a state: pending, firing, cleared.

#[cfg(test)]
mod change_tests;
mod decide;
mod events;
mod judge;
#[cfg(test)]
mod judge_tests;
mod memory;
mod slope;
mod spec;
#[cfg(test)]
mod tests;

pub use decide::Alarm;
pub use events::{Acknowledged, AlarmCommand, AlarmEvent, AlarmEventKind, AlarmMark, AlarmState, NewAlarm};
pub use judge::AlarmJudge;
pub use memory::{AlarmMemory, AlarmReason, AlarmStep, JudgedValue, OpenAlarm, StepKind};
pub use slope::MAX_VALUES as WINDOW_VALUES;
pub use spec::{AlarmChanges, AlarmSpec, AlarmTerms, Severity};

/// The limits that the rules below keep, for those who describe or check them elsewhere.
pub mod limits {
    pub use super::{
        events::MAX_COMMENT,
        spec::{MAX_RATE_WINDOW, MAX_SECONDS},
    };
}
