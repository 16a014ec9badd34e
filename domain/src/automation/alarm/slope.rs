use std::collections::VecDeque;

use chrono::{DateTime, TimeDelta, Utc};

use crate::automation::DatapointPlace;

/// Most values of a window; of more, the newest count.
pub const MAX_VALUES: usize = 10_000;

/// The newest values of a channel, for the slope of their regression line.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    values: VecDeque<(DateTime<Utc>, f64, DatapointPlace)>,
}

impl Window {
    /// Adds a value that is newer than all others, and drops those that are older than `length` then.
    pub(super) fn push(
        &mut self,
        length: TimeDelta,
        place: DatapointPlace,
        (on, value): (DateTime<Utc>, f64),
    ) {
        self.values.push_back((on, value, place));
        let is_past = |(first, ..): &(DateTime<Utc>, f64, DatapointPlace)| on - *first > length;
        while self.values.len() > MAX_VALUES || self.values.front().is_some_and(is_past) {
            self.values.pop_front();
        }
    }

    /// Leaves out a value that is deleted.
    pub(super) fn forget(&mut self, place: DatapointPlace) {
        self.values.retain(|(.., known)| *known != place);
    }

    pub(super) fn clear(&mut self) {
        self.values.clear();
    }

    /// The least-squares slope per second; `None` with fewer than two values.
    pub(super) fn slope(&self) -> Option<f64> {
        let (newest, ..) = *self.values.back().filter(|_| self.values.len() > 1)?;
        // Times relative to the newest, and both means taken out first, so that no digits are lost.
        let point =
            |(on, value, _): &(DateTime<Utc>, f64, DatapointPlace)| ((*on - newest).as_seconds_f64(), *value);
        let count = self.values.len() as f64;
        let (times, values) = self
            .values
            .iter()
            .map(point)
            .fold((0.0, 0.0), |(times, values), (time, value)| (times + time, values + value / count));
        let mean = (times / count, values);
        let (covariance, variance) = self.values.iter().map(point).fold((0.0, 0.0), |sums, (time, value)| {
            let (time, value) = (time - mean.0, value - mean.1);
            (sums.0 + time * value, sums.1 + time * time)
        });
        Some(covariance / variance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::milliseconds(milliseconds)
    }

    fn window(length: i64, values: &[(i64, f64)]) -> Window {
        let mut window = Window::default();
        for (index, (milliseconds, value)) in (0..).zip(values) {
            let place = DatapointPlace { position: 1, index };
            window.push(TimeDelta::milliseconds(length), place, (at(*milliseconds), *value));
        }
        window
    }

    fn assert_slope(window: &Window, expected: f64) {
        let slope = window.slope().unwrap();
        assert!((slope - expected).abs() <= 1e-9, "{slope} instead of {expected}");
    }

    #[test]
    fn the_slope_is_that_of_the_regression_line() {
        assert_slope(&window(60_000, &[(0, 1.0), (1000, 3.0), (2000, 5.0)]), 2.0);
        // As computed by hand: covariance 4.5 over variance 5.
        assert_slope(&window(60_000, &[(0, 1.0), (1000, 2.0), (2000, 2.0), (3000, 4.0)]), 0.9);
        assert_slope(&window(60_000, &[(0, 7.5), (500, 7.5)]), 0.0);
    }

    #[test]
    fn both_ends_belong_to_the_window() {
        assert_slope(&window(2000, &[(0, 1.0), (1000, 3.0), (2000, 5.0)]), 2.0);
        // The first one has left.
        assert_slope(&window(1000, &[(0, 100.0), (1000, 3.0), (2000, 5.0)]), 2.0);
        assert!(window(999, &[(0, 1.0), (1000, 3.0)]).slope().is_none());
        assert!(window(999, &[]).slope().is_none());
    }

    #[test]
    fn a_deleted_value_is_left_out() {
        let mut window = window(60_000, &[(0, 1.0), (1000, 90.0), (2000, 5.0)]);
        window.forget(DatapointPlace { position: 1, index: 1 });
        assert_slope(&window, 2.0);
    }

    #[test]
    fn a_great_offset_costs_no_digits() {
        let values: Vec<_> =
            (0..100).map(|n: i32| (i64::from(n) * 1000, 1e9 + f64::from(n) * 0.25)).collect();
        assert_slope(&window(600_000, &values), 0.25);
    }

    #[test]
    fn a_window_keeps_the_newest_values() {
        let values: Vec<_> = (0..=MAX_VALUES as i64).map(|n| (n, 0.0)).collect();
        let window = window(3_600_000, &values);
        assert_eq!(window.values.len(), MAX_VALUES);
        assert_eq!(window.values.front().unwrap().0, at(1));
    }
}
