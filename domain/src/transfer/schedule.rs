use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use croner::{
    Cron,
    parser::{CronParser, Seconds},
};
use serde::{Deserialize, Serialize};

use crate::kernel::Rejection;

/// When a job runs: a cron expression in a time zone.
///
/// A time whose hours, minutes and seconds are all given is fixed: if a clock change skips it, it fires once, at the
/// first instant after the gap; if a clock change repeats it, it fires only the first time. Expressions with `*` or
/// steps in those fields fire at every local time that exists, and twice at repeated ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Five or six fields; with six, the first one is seconds.
    pub cron: String,
    /// IANA name, e.g. `Europe/Berlin`.
    pub timezone: String,
}

/// Why a schedule was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSchedule {
    /// Neither five nor six fields.
    #[error("schedule must have five fields, or six with seconds first, but has {0}")]
    FieldCount(usize),
    /// One field does not parse.
    #[error("schedule is not valid in its field for {0}")]
    Field(&'static str),
    /// The fields parse, but not together.
    #[error("schedule is not a cron expression")]
    Expression,
    /// Such as the 30th of February.
    #[error("schedule names a time that never occurs")]
    Never,
    /// No such time zone.
    #[error("timezone is not an IANA time zone name such as Europe/Berlin")]
    Timezone,
}

impl From<InvalidSchedule> for Rejection {
    fn from(error: InvalidSchedule) -> Self {
        let (code, field) = match error {
            InvalidSchedule::Timezone => ("invalid_timezone", "timezone"),
            _ => ("invalid_schedule", "schedule"),
        };
        Self::invalid(code, error.to_string()).about(field)
    }
}

/// The fields of an expression with seconds.
const FIELDS: [&str; 6] = ["seconds", "minutes", "hours", "days of the month", "months", "days of the week"];
/// Longest steps in these fields: with a longer one, a field has one value and does not say so.
const LONGEST_STEPS: [u32; 6] = [59, 59, 23, 31, 12, 7];
/// An expression with more fixed times a day than this is taken as one pattern.
const MAX_FIXED_TIMES: usize = 96;

/// Checks the name of a time zone.
///
/// # Errors
/// [`InvalidSchedule::Timezone`].
pub fn validate_timezone(timezone: &str) -> Result<(), InvalidSchedule> {
    timezone.parse::<Tz>().map(|_| ()).map_err(|_| InvalidSchedule::Timezone)
}

impl Schedule {
    /// Checks the expression and the zone.
    ///
    /// # Errors
    /// [`InvalidSchedule`] names the part that is wrong.
    pub fn validate(&self) -> Result<(), InvalidSchedule> {
        validate_timezone(&self.timezone)?;
        let fields = self.fields()?;
        for (index, (field, name)) in fields.iter().zip(FIELDS).enumerate() {
            if field.split(',').any(|part| !is_plausible(part, LONGEST_STEPS[index])) {
                return Err(InvalidSchedule::Field(name));
            }
            let mut alone = ["*"; 6];
            alone[index] = field;
            parse(&alone.join(" ")).map_err(|_| InvalidSchedule::Field(name))?;
        }
        self.crons()?;
        if self.next_after(DateTime::UNIX_EPOCH).is_none() { Err(InvalidSchedule::Never) } else { Ok(()) }
    }

    /// First firing after `time`, if any.
    pub fn next_after(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let (crons, zone) = (self.crons().ok()?, self.timezone.parse::<Tz>().ok()?);
        let from = time.with_timezone(&zone);
        let next = crons.iter().filter_map(|cron| cron.find_next_occurrence(&from, false).ok());
        next.map(|next| next.with_timezone(&Utc)).min()
    }

    /// Latest firing at or before `time`, if any.
    pub fn latest_until(&self, time: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let (crons, zone) = (self.crons().ok()?, self.timezone.parse::<Tz>().ok()?);
        let until = time.with_timezone(&zone);
        let latest = crons.iter().filter_map(|cron| cron.find_previous_occurrence(&until, true).ok());
        latest.map(|latest| latest.with_timezone(&Utc)).max()
    }

    /// The six fields; the parser would also take a seventh for years, and words such as @daily.
    fn fields(&self) -> Result<[&str; 6], InvalidSchedule> {
        let mut fields: Vec<&str> = self.cron.split_whitespace().collect();
        let count = fields.len();
        if count == 5 {
            fields.insert(0, "0");
        }
        fields.try_into().map_err(|_| InvalidSchedule::FieldCount(count))
    }

    /// One pattern for each fixed time of day, because the parser treats only single times as fixed; else one pattern.
    fn crons(&self) -> Result<Vec<Cron>, InvalidSchedule> {
        let [seconds, minutes, hours, days @ ..] = self.fields()?;
        let days = days.join(" ");
        let whole = format!("{seconds} {minutes} {hours} {days}");
        let fixed = numbers(seconds).zip(numbers(minutes)).zip(numbers(hours));
        let times = match &fixed {
            Some(((seconds, minutes), hours)) => seconds.len() * minutes.len() * hours.len(),
            None => 0,
        };
        let patterns = match fixed {
            Some(((seconds, minutes), hours)) if (1..=MAX_FIXED_TIMES).contains(&times) => hours
                .iter()
                .flat_map(|hour| minutes.iter().map(move |minute| (minute, hour)))
                .flat_map(|(minute, hour)| seconds.iter().map(move |second| (second, minute, hour)))
                .map(|(second, minute, hour)| format!("{second} {minute} {hour} {days}"))
                .collect(),
            _ => vec![whole],
        };
        patterns.iter().map(|pattern| parse(pattern)).collect()
    }
}

/// Refuses parts of lists that the parser passes over: empty ones, and steps beyond the range of the field.
fn is_plausible(part: &str, longest_step: u32) -> bool {
    let step = part.split_once('/').map(|(_, step)| step.parse::<u32>());
    !part.is_empty() && step.is_none_or(|step| step.is_ok_and(|step| (1..=longest_step).contains(&step)))
}

fn parse(pattern: &str) -> Result<Cron, InvalidSchedule> {
    let parser = CronParser::builder().seconds(Seconds::Required).build();
    parser.parse(pattern).map_err(|_| InvalidSchedule::Expression)
}

/// The numbers of a field made only of numbers, lists and ranges.
fn numbers(field: &str) -> Option<BTreeSet<u32>> {
    let mut numbers = BTreeSet::new();
    for part in field.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        // No field has larger numbers; the parser reports them.
        if first > last || last > 59 {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
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
    fn a_fixed_time_in_the_skipped_hour_fires_once_at_its_end() {
        for cron in ["0 30 2 * * *", "0 0,30 2 * * *", "0 15 2-2 * * *", "0 30 2,14 29 * *"] {
            let berlin = schedule(cron, "Europe/Berlin");
            let first = berlin.next_after(time("2026-03-28T14:00:00Z")).unwrap();
            assert_eq!(first, time("2026-03-29T01:00:00Z"), "{cron}");
            assert!(berlin.next_after(first).unwrap() > time("2026-03-29T01:59:59Z"), "{cron}");
            assert_eq!(berlin.latest_until(time("2026-03-29T01:30:00Z")), Some(first), "{cron}");
        }
    }

    #[test]
    fn a_list_of_fixed_times_fires_once_in_the_repeated_hour() {
        let berlin = schedule("0 0,30 2 * * *", "Europe/Berlin");
        let mut fired = vec![berlin.next_after(time("2026-10-24T12:00:00Z")).unwrap()];
        for _ in 0..2 {
            fired.push(berlin.next_after(fired[fired.len() - 1]).unwrap());
        }
        let expected = ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:00:00Z"].map(time);
        assert_eq!(fired, expected);
        assert_eq!(berlin.latest_until(time("2026-10-25T01:45:00Z")), Some(expected[1]));
    }

    #[test]
    fn a_wildcard_hour_fires_at_every_local_time_that_exists() {
        for cron in ["0 0,30 * * * *", "0 */30 * * * *"] {
            let berlin = schedule(cron, "Europe/Berlin");
            let mut at = time("2026-10-24T23:59:00Z");
            let mut fired = Vec::new();
            while at < time("2026-10-25T02:00:00Z") {
                at = berlin.next_after(at).unwrap();
                fired.push(at);
            }
            assert_eq!(fired.len(), 5, "{cron}: two in each of two hours, and the end: {fired:?}");
            let after_the_gap = berlin.next_after(time("2026-03-29T00:59:00Z")).unwrap();
            assert_eq!(after_the_gap, time("2026-03-29T01:00:00Z"), "{cron}");
        }
    }

    #[test]
    fn the_wrong_part_is_named() {
        for (cron, timezone, expected) in [
            ("61 * * * * *", "UTC", InvalidSchedule::Field("seconds")),
            ("60 * * * *", "UTC", InvalidSchedule::Field("minutes")),
            ("0 0 0 * 13 *", "UTC", InvalidSchedule::Field("months")),
            ("1,2,,4 * * * * *", "UTC", InvalidSchedule::Field("seconds")),
            ("*/60 * * * * *", "UTC", InvalidSchedule::Field("seconds")),
            ("0 */5368709121 * * * *", "UTC", InvalidSchedule::Field("minutes")),
            ("0 0 0-12/24 * * *", "UTC", InvalidSchedule::Field("hours")),
            ("every day", "UTC", InvalidSchedule::FieldCount(2)),
            ("0 0 0 1 1 * 2030", "UTC", InvalidSchedule::FieldCount(7)),
            ("0 0 0 30 2 *", "UTC", InvalidSchedule::Never),
            ("0 * * * * *", "Mars/Base", InvalidSchedule::Timezone),
        ] {
            assert_eq!(schedule(cron, timezone).validate(), Err(expected), "{cron}");
        }
        for valid in ["30 4 * * MON-FRI", "*/59 * * * * *", "0 0,30 */23 1,15 * *"] {
            assert_eq!(schedule(valid, "UTC").validate(), Ok(()), "{valid}");
        }
    }
}
