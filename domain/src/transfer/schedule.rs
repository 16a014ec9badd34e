use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::{
    Cron,
    parser::{CronParser, Seconds},
};
use serde::{Deserialize, Serialize};

use crate::kernel::Rejection;

/// When a job runs: a cron expression in a time zone. Daylight saving rules are croner's (Vixie's): a fixed
/// time that the clock skips runs right after the gap, one that the clock repeats runs once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Five or six fields; with six, seconds come first.
    pub cron: String,
    /// IANA name, e.g. `Europe/Berlin`.
    pub timezone: String,
}

/// Why a schedule was refused.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSchedule {
    /// The expression does not parse, or never comes true.
    #[error("schedule is not a cron expression of five or six fields (seconds first): {0}")]
    Cron(String),
    /// No such time zone.
    #[error("timezone is not an IANA time zone name such as Europe/Berlin")]
    Timezone,
}

impl From<InvalidSchedule> for Rejection {
    fn from(error: InvalidSchedule) -> Self {
        let code = match error {
            InvalidSchedule::Cron(_) => "invalid_schedule",
            InvalidSchedule::Timezone => "invalid_timezone",
        };
        Self::invalid(code, error.to_string())
    }
}

impl Schedule {
    /// Checks the expression and the zone.
    ///
    /// # Errors
    /// [`InvalidSchedule`] names the part that is wrong.
    pub fn validate(&self) -> Result<(), InvalidSchedule> {
        self.parse()?;
        let invalid = |reason: &str| Err(InvalidSchedule::Cron(reason.to_owned()));
        // The parser knows a seventh field for years, and words such as @daily.
        match self.cron.split_whitespace().count() {
            5 | 6 if self.next_after(DateTime::UNIX_EPOCH).is_none() => invalid("it never comes true"),
            5 | 6 => Ok(()),
            count => invalid(&format!("it has {count} fields")),
        }
    }

    /// First firing after `time`, if any.
    pub fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let (cron, zone) = self.parse().ok()?;
        let next = cron.find_next_occurrence(&time.with_timezone(&zone), false).ok()?;
        Some(next.with_timezone(&Utc))
    }

    /// Latest firing at or before `time`, if any.
    pub fn latest_until(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let (cron, zone) = self.parse().ok()?;
        let latest = cron.find_previous_occurrence(&time.with_timezone(&zone), true).ok()?;
        Some(latest.with_timezone(&Utc))
    }

    fn parse(&self) -> Result<(Cron, Tz), InvalidSchedule> {
        let zone: Tz = self.timezone.parse().map_err(|_| InvalidSchedule::Timezone)?;
        let parser = CronParser::builder().seconds(Seconds::Optional).build();
        let cron = parser.parse(&self.cron).map_err(|error| InvalidSchedule::Cron(error.to_string()))?;
        Ok((cron, zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(cron: &str, timezone: &str) -> Schedule {
        Schedule { cron: cron.into(), timezone: timezone.into() }
    }

    fn time(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn six_fields_start_with_seconds_and_five_mean_second_zero() {
        let now = time("2026-03-01T10:00:00Z");
        assert_eq!(schedule("*/10 * * * * *", "UTC").next_after(now), Some(time("2026-03-01T10:00:10Z")));
        assert_eq!(schedule("30 10 * * *", "UTC").next_after(now), Some(time("2026-03-01T10:30:00Z")));
    }

    #[test]
    fn a_repeated_hour_runs_a_fixed_time_once() {
        let berlin = schedule("0 30 2 * * *", "Europe/Berlin");
        let first = berlin.next_after(time("2026-10-24T12:00:00Z")).unwrap();
        let second = berlin.next_after(first).unwrap();
        assert_eq!(first, time("2026-10-25T00:30:00Z"));
        assert_eq!(second, time("2026-10-26T01:30:00Z"));
    }

    #[test]
    fn a_skipped_hour_still_runs_a_fixed_time() {
        let berlin = schedule("0 30 2 * * *", "Europe/Berlin");
        let next = berlin.next_after(time("2026-03-28T12:00:00Z")).unwrap();
        assert!(next >= time("2026-03-29T01:00:00Z") && next < time("2026-03-29T02:00:00Z"), "{next}");
    }

    #[test]
    fn the_wrong_part_is_named() {
        assert!(matches!(schedule("61 * * * * *", "UTC").validate(), Err(InvalidSchedule::Cron(_))));
        assert!(matches!(schedule("* * * * * * * * *", "UTC").validate(), Err(InvalidSchedule::Cron(_))));
        assert!(matches!(schedule("0 * * * * *", "Mars/Base").validate(), Err(InvalidSchedule::Timezone)));
    }
}
