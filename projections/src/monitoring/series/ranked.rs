//! Which point of a channel is the current one.

use std::collections::HashMap;

use super::Datapoint;

/// A point and the earlier of when it was measured and when it arrived, in microseconds since 1970.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranked {
    pub(super) rank: i64,
    pub(super) point: Datapoint,
}

impl Ranked {
    /// `arrived` is missing for a row that retention has dropped.
    pub(super) fn new(point: Datapoint, arrived: Option<i64>) -> Self {
        let time = point.point.time;
        Self { rank: arrived.map_or(time, |arrived| arrived.min(time)), point }
    }

    pub(super) fn order(&self) -> (i64, i64, u32) {
        (self.rank, self.point.point.position, self.point.point.index)
    }
}

/// The current one of each channel's points.
pub(super) fn current_of(points: impl Iterator<Item = Ranked>) -> HashMap<i32, Ranked> {
    let mut current: HashMap<i32, Ranked> = HashMap::new();
    for ranked in points {
        let known = current.entry(ranked.point.channel).or_insert(ranked);
        if known.order() < ranked.order() {
            *known = ranked;
        }
    }
    current
}
