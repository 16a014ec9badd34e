use std::{collections::HashMap, hash::Hash};

use chrono::{DateTime, TimeDelta, Utc};

/// Times of values that arrive together without one, in each series `K`: the last has the time of arrival, each before it a
/// microsecond less. At one time they would have no order, and an alarm rule would take all but the first for late.
pub(super) struct Arrival<K> {
    time: DateTime<Utc>,
    /// Values of each series that have a time.
    given: HashMap<K, i64>,
}

impl<K: Eq + Hash> Arrival<K> {
    pub(super) fn at(time: DateTime<Utc>) -> Self {
        Self { time, given: HashMap::new() }
    }

    /// The time of the last value of `series` that has none yet.
    pub(super) fn time_of_last(&mut self, series: K) -> DateTime<Utc> {
        let later = self.given.entry(series).or_default();
        let time = self.time - TimeDelta::microseconds(*later);
        *later += 1;
        time
    }
}
