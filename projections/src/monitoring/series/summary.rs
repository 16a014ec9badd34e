//! The aggregates of several points. Those of two sets of points add up to those of both.

use std::cmp::{max_by, min_by};

use signalbox_datapoint_log::ChunkPoint;

/// Which figures of summaries are read. The others mean nothing then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figures {
    /// Each of them.
    All,
    /// Count, sum and mean.
    Sums,
    /// Least and greatest value.
    Extremes,
    /// First and last point.
    Ends,
}

/// Count, sum, extremes, first and last of at least one point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub(super) count: i64,
    pub(super) sum: Sum,
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) first: ChunkPoint,
    pub(super) last: ChunkPoint,
}

/// A sum with the digits that a float has no room for: the error does not grow with the number of values, and adding in
/// another order gives the same to many more digits than are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sum {
    pub(super) high: f64,
    pub(super) low: f64,
}

impl Sum {
    pub(super) fn plus(self, other: Self) -> Self {
        let sum = self.high + other.high;
        if !sum.is_finite() {
            // Beyond what a float holds; it stays at the greatest one.
            return Self { high: f64::MAX.copysign(sum), low: 0.0 };
        }
        // Knuth's two-sum: the rounding error of the sum of the high parts.
        let part = sum - self.high;
        let rounded = (self.high - (sum - part)) + (other.high - part);
        let low = rounded + self.low + other.low;
        let high = sum + low;
        if high.is_finite() && low.is_finite() {
            Self { high, low: low - (high - sum) }
        } else {
            Self { high: sum, low: 0.0 }
        }
    }
}

impl Summary {
    /// Of one point.
    pub(super) fn of(point: ChunkPoint) -> Self {
        let sum = Sum { high: point.value, low: 0.0 };
        Self { count: 1, sum, min: point.value, max: point.value, first: point, last: point }
    }

    /// Of the points of both.
    pub(super) fn plus(self, other: &Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum.plus(other.sum),
            // Of the two zeros the negative one is less, so that the order of adding makes no difference.
            min: min_by(self.min, other.min, f64::total_cmp),
            max: max_by(self.max, other.max, f64::total_cmp),
            first: if other.first.order() < self.first.order() { other.first } else { self.first },
            last: if other.last.order() > self.last.order() { other.last } else { self.last },
        }
    }

    /// Number of points.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// Sum of the values; the greatest float if it is beyond that.
    pub fn sum(&self) -> f64 {
        self.sum.high
    }

    /// Mean of the values.
    pub fn avg(&self) -> f64 {
        self.sum.high / self.count as f64
    }

    /// Least value.
    pub fn min(&self) -> f64 {
        self.min
    }

    /// Greatest value.
    pub fn max(&self) -> f64 {
        self.max
    }

    /// The point measured first; of one instant, the one that arrived first.
    pub fn first(&self) -> ChunkPoint {
        self.first
    }

    /// The point measured last; of one instant, the one that arrived last.
    pub fn last(&self) -> ChunkPoint {
        self.last
    }
}

/// The summary of `points`, if there are any.
pub(super) fn summarised<'a>(points: impl IntoIterator<Item = &'a ChunkPoint>) -> Option<Summary> {
    let singles = points.into_iter().map(|point| Summary::of(*point));
    singles.reduce(|sum, point| sum.plus(&point))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(values: &[f64]) -> Vec<ChunkPoint> {
        let point = |(index, value): (usize, &f64)| ChunkPoint {
            time: 7,
            value: *value,
            position: 1,
            index: index as u32,
        };
        values.iter().enumerate().map(point).collect()
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let points = points(&[1e16, 1.0, -3.5, 0.1, -1e16, 2.0, 1e-9]);
        let whole = summarised(&points).unwrap();
        assert_eq!((whole.count(), whole.min(), whole.max()), (7, -1e16, 1e16));
        assert_eq!((whole.first().index, whole.last().index), (0, 6));
        assert!((whole.sum() + 0.399_999_999).abs() < 1e-15, "{}", whole.sum());
        for split in 1..points.len() {
            let (left, right) = points.split_at(split);
            let (left, right) = (summarised(left).unwrap(), summarised(right).unwrap());
            for sum in [left.plus(&right), right.plus(&left)] {
                assert!((sum.sum() - whole.sum()).abs() < 1e-15, "{split}");
                assert_eq!(Summary { sum: whole.sum, ..sum }, whole, "{split}");
            }
        }
    }

    #[test]
    fn sum_beyond_a_float_stays_a_number() {
        let sum = summarised(&points(&[f64::MAX, f64::MAX, 1.0])).unwrap();
        assert_eq!(sum.sum(), f64::MAX);
        let sum = summarised(&points(&[-f64::MAX, -f64::MAX])).unwrap();
        assert_eq!((sum.sum(), sum.avg()), (f64::MIN, f64::MIN / 2.0));
    }
}
