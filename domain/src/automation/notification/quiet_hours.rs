use chrono::{DateTime, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

/// The longest gap in local time that a zone had: Samoa left out a day.
const MAX_GAP_MINUTES: i64 = 24 * 60;

/// A part of each day in which a contact is sent critical alarms only.
///
/// A clock change treats its ends as fixed times of a schedule: one that is skipped is the first instant after the gap,
/// one that is repeated is the first of the two.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuietHours {
    /// Local time of their first minute.
    pub from: NaiveTime,
    /// Local time of the first minute after them; of the next day, if it is not after `from`.
    pub to: NaiveTime,
    /// IANA name, e.g. `Europe/Berlin`.
    pub timezone: String,
}

/// Why quiet hours were refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuietHours {
    /// They would be empty or last all day.
    #[error("quiet hours must end at another time than they start")]
    Empty,
    #[error("quiet hours must start and end at whole minutes")]
    Seconds,
    #[error("timezone is not an IANA time zone name such as Europe/Berlin")]
    Timezone,
}

impl QuietHours {
    /// Checks the times and the zone.
    ///
    /// # Errors
    /// [`InvalidQuietHours`] names the part that is wrong.
    pub fn validate(&self) -> Result<(), InvalidQuietHours> {
        if self.from == self.to {
            return Err(InvalidQuietHours::Empty);
        }
        if [self.from, self.to].iter().any(|time| time.second() != 0 || time.nanosecond() != 0) {
            return Err(InvalidQuietHours::Seconds);
        }
        self.timezone.parse::<Tz>().map(|_| ()).map_err(|_| InvalidQuietHours::Timezone)
    }

    /// When the quiet hours end that contain `at`; `None` outside of them.
    pub fn end_after(&self, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let zone = self.timezone.parse::<Tz>().ok()?;
        let today = at.with_timezone(&zone).date_naive();
        [today.pred_opt(), Some(today)].into_iter().flatten().find_map(|first_day| {
            let last_day = if self.from < self.to { first_day } else { first_day.succ_opt()? };
            let start = instant(zone, first_day.and_time(self.from))?;
            let end = instant(zone, last_day.and_time(self.to))?;
            (start <= at && at < end).then_some(end)
        })
    }
}

/// The first instant with this local time, or after the gap that skips it.
fn instant(zone: Tz, local: NaiveDateTime) -> Option<DateTime<Utc>> {
    (0..=MAX_GAP_MINUTES).find_map(|minutes| {
        let local = local.checked_add_signed(TimeDelta::minutes(minutes))?;
        zone.from_local_datetime(&local).earliest().map(|instant| instant.with_timezone(&Utc))
    })
}
