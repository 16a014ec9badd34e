use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use uuid::Uuid;

/// A value that arrived on a channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// The channel's integer.
    pub channel: i32,
    /// When it was measured, in microseconds since 1970.
    pub time: i64,
    /// Finite, unless the point [is cleared](Point::is_cleared).
    pub value: f64,
}

impl Point {
    /// Holds the place of a removed value in a row of the log, so that the index of the others stays.
    pub(crate) fn cleared(channel: i32) -> Self {
        Self { channel, time: 0, value: f64::NAN }
    }

    /// Whether its value was removed from the log.
    pub fn is_cleared(&self) -> bool {
        self.value.is_nan()
    }
}

/// A point of one channel, with its place in the log.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChunkPoint {
    /// When it was measured, in microseconds since 1970.
    pub time: i64,
    pub value: f64,
    /// Position of its row in the log.
    pub position: i64,
    /// Place within the row.
    pub index: u32,
}

impl ChunkPoint {
    /// Order in time; of points of one instant, the one that arrived later is the later one.
    pub fn order(&self) -> (i64, i64, u32) {
        (self.time, self.position, self.index)
    }
}

/// Where a point is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// The day of its row, which names the partition.
    pub day: NaiveDate,
    /// Position of its row.
    pub position: i64,
    /// Place within the row.
    pub index: u32,
}

/// The sender of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A user with a login session.
    User(Uuid),
    /// An API token.
    Token(Uuid),
}

/// `time` in microseconds since 1970.
pub fn micros(time: DateTime<Utc>) -> i64 {
    time.timestamp_micros()
}

/// The time `micros` after the start of 1970, or that start if the calendar does not reach so far.
pub fn moment(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap_or_default()
}

/// Days since 1970 as ids hold them.
pub(crate) fn day_number(day: NaiveDate) -> u16 {
    let days = day.signed_duration_since(NaiveDate::default()).num_days();
    days.clamp(0, i64::from(u16::MAX)) as u16
}

pub(crate) fn day_of_number(number: u16) -> NaiveDate {
    NaiveDate::default() + TimeDelta::days(i64::from(number))
}
