use chrono::NaiveDate;
use signalbox_datapoint_log::{ChunkPoint, codec::Sample};

use super::Datapoint;

/// The treatment of points that are not shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Aggregate {
    /// They are left out; every n-th point is shown.
    #[default]
    None,
    /// Each shown value is the mean of the points that it stands for.
    Avg,
    /// The least of them is shown.
    Min,
    /// The greatest of them is shown.
    Max,
    /// Both are shown, in the order of time.
    MinMax,
}

/// A point, or several. Small, because there are many and they are sorted.
#[derive(Debug, Clone)]
pub(super) enum Entry {
    Point(Datapoint),
    /// This many points, of which only the first one is known.
    Many(u32, Datapoint),
    Sample {
        channel: i32,
        day: NaiveDate,
        sample: Box<Sample>,
    },
}

impl Entry {
    pub(super) fn order(&self) -> (i64, i64, u32) {
        self.first().point.order()
    }

    /// The point, if it is a single one.
    pub(super) fn point(&self) -> Option<Datapoint> {
        match self {
            Self::Point(point) => Some(*point),
            Self::Many(..) | Self::Sample { .. } => None,
        }
    }

    pub(super) fn first(&self) -> Datapoint {
        match self {
            Self::Point(point) | Self::Many(_, point) => *point,
            Self::Sample { channel, day, sample } => {
                Datapoint { channel: *channel, day: *day, point: sample.first }
            }
        }
    }

    fn sample(&self) -> Sample {
        match self {
            Self::Point(point) => Sample::one(point.point),
            Self::Many(count, point) => Sample { count: *count, ..Sample::one(point.point) },
            Self::Sample { sample, .. } => **sample,
        }
    }

    fn count(&self) -> usize {
        match self {
            Self::Point(_) => 1,
            Self::Many(count, _) => *count as usize,
            Self::Sample { sample, .. } => sample.count as usize,
        }
    }

    /// `point` of this entry.
    fn with(&self, point: ChunkPoint) -> Datapoint {
        Datapoint { point, ..self.first() }
    }
}

/// At most `most` points for `entries`, which are in order; `last` is the newest of all points.
pub(super) fn thin(
    entries: &[Entry],
    last: Option<Datapoint>,
    most: usize,
    aggregate: Aggregate,
) -> Vec<Datapoint> {
    let Some(last) = last else { return Vec::new() };
    let total: usize = entries.iter().map(Entry::count).sum();
    if total <= most && entries.iter().all(|entry| entry.point().is_some()) {
        return entries.iter().map(Entry::first).collect();
    }
    match aggregate {
        Aggregate::None => every_nth(entries, last, total, most),
        _ => buckets(entries, last, total, most, aggregate),
    }
}

/// The points at ⌊i · total / most⌋, and the last one.
fn every_nth(entries: &[Entry], last: Datapoint, total: usize, most: usize) -> Vec<Datapoint> {
    let mut found: Vec<Datapoint> = Vec::with_capacity(most);
    let (mut passed, mut rest) = (0, entries.iter());
    let mut entry = rest.next();
    for nth in 0..most - 1 {
        let target = nth * total / most;
        while let Some(known) = entry
            && passed + known.count() <= target
        {
            passed += known.count();
            entry = rest.next();
        }
        let Some(known) = entry else { break };
        let point = known.first();
        // A sample that stands for several of them is shown once.
        if found.last() != Some(&point) && point.point.order() < last.point.order() {
            found.push(point);
        }
    }
    found.push(last);
    found
}

/// The values of the buckets, in order of time, and the last point.
fn buckets(
    entries: &[Entry],
    last: Datapoint,
    total: usize,
    most: usize,
    aggregate: Aggregate,
) -> Vec<Datapoint> {
    let most = most - 1;
    let count = if aggregate == Aggregate::MinMax { (most / 2).max(1) } else { most };
    let (mut found, mut passed) = (Vec::with_capacity(most + 1), 0);
    let mut rest = entries;
    while let Some(first) = rest.first() {
        let bucket = passed * count / total;
        let (mut sum, mut taken) = (first.sample(), 1);
        let (mut least, mut greatest) = (first, first);
        passed += first.count();
        while let Some(next) = rest.get(taken)
            && passed * count / total == bucket
        {
            passed += next.count();
            let known = next.sample();
            if known.min.value < sum.min.value {
                least = next;
            }
            if known.max.value > sum.max.value {
                greatest = next;
            }
            sum = sum.with(&known);
            taken += 1;
        }
        let (min, max) = (least.with(sum.min), greatest.with(sum.max));
        match aggregate {
            Aggregate::Min => found.push(min),
            Aggregate::Max => found.push(max),
            Aggregate::MinMax if min == max => found.push(min),
            Aggregate::MinMax => {
                let in_order = min.point.order() < max.point.order();
                found.extend(if in_order { [min, max] } else { [max, min] });
            }
            Aggregate::None | Aggregate::Avg => {
                let value = sum.sum / f64::from(sum.count);
                found.push(first.with(ChunkPoint { value, ..sum.first }));
            }
        }
        rest = &rest[taken..];
    }
    // Samples of late values overlap others in time, so the extremes of neighbouring buckets may be in any order.
    found.sort_by_key(|point| point.point.order());
    if found.last() != Some(&last) {
        found.retain(|point| point.point.order() != last.point.order());
        found.push(last);
    }
    found
}

#[cfg(test)]
mod tests {
    use signalbox_datapoint_log::codec::samples;

    use super::*;

    fn point(index: i64) -> ChunkPoint {
        ChunkPoint { time: index, value: index as f64, position: 1, index: index as u32 }
    }

    fn datapoint(point: ChunkPoint) -> Datapoint {
        Datapoint { channel: 1, day: NaiveDate::default(), point }
    }

    fn singles(count: i64) -> Vec<Entry> {
        (0..count).map(|index| Entry::Point(datapoint(point(index)))).collect()
    }

    fn values(points: &[Datapoint]) -> Vec<f64> {
        points.iter().map(|point| point.point.value).collect()
    }

    fn thinned(entries: &[Entry], last: i64, most: usize, aggregate: Aggregate) -> Vec<f64> {
        values(&thin(entries, Some(datapoint(point(last))), most, aggregate))
    }

    #[test]
    fn every_nth_point_and_the_last_one_are_shown() {
        let expected = [0.0, 2.0, 5.0, 8.0, 10.0, 13.0, 16.0, 18.0, 21.0, 26.0];
        assert_eq!(thinned(&singles(27), 26, 10, Aggregate::None), expected);
        assert_eq!(thinned(&singles(10), 9, 10, Aggregate::None).len(), 10);
        assert_eq!(thinned(&[], 0, 10, Aggregate::None), [0.0; 0].to_vec());
    }

    #[test]
    fn aggregates_stand_for_what_they_leave_out() {
        let entries = singles(20);
        assert_eq!(thinned(&entries, 19, 11, Aggregate::Min)[..3], [0.0, 2.0, 4.0]);
        assert_eq!(thinned(&entries, 19, 11, Aggregate::Max)[..3], [1.0, 3.0, 5.0]);
        assert_eq!(thinned(&entries, 19, 11, Aggregate::Avg)[..3], [0.5, 2.5, 4.5]);
        let both = thinned(&entries, 19, 11, Aggregate::MinMax);
        assert_eq!(both, [0.0, 3.0, 4.0, 7.0, 8.0, 11.0, 12.0, 15.0, 16.0, 19.0]);
    }

    #[test]
    fn newest_point_is_the_last_of_every_aggregate() {
        for aggregate in [Aggregate::Avg, Aggregate::Min, Aggregate::Max, Aggregate::MinMax] {
            for total in [11, 12, 20, 99, 1000] {
                let shown = thin(&singles(total), Some(datapoint(point(total - 1))), 10, aggregate);
                assert_eq!(shown.last(), Some(&datapoint(point(total - 1))), "{aggregate:?} {total}");
            }
        }
    }

    #[test]
    fn aggregates_of_overlapping_samples_are_in_order_of_time() {
        let day = NaiveDate::default();
        // Late values: the second half of the points was measured within the time of the first half.
        let first: Vec<_> = (0..3200).map(|index| point(2 * index)).collect();
        let second: Vec<_> =
            (0..3200).map(|index| ChunkPoint { position: 2, ..point(2 * index + 1) }).collect();
        let sampled = [first, second].into_iter().flat_map(|points| samples(&points, 8));
        let mut entries: Vec<_> =
            sampled.map(|sample| Entry::Sample { channel: 1, day, sample: Box::new(sample) }).collect();
        entries.sort_by_key(Entry::order);
        let last = datapoint(ChunkPoint { position: 2, ..point(6399) });
        for aggregate in [Aggregate::Avg, Aggregate::Min, Aggregate::Max, Aggregate::MinMax] {
            let shown = thin(&entries, Some(last), 10, aggregate);
            assert!(shown.is_sorted_by_key(|point| point.point.time), "{aggregate:?}: {shown:?}");
            assert_eq!(shown.last(), Some(&last), "{aggregate:?}");
        }
    }

    #[test]
    fn samples_are_thinned_like_the_points_that_they_stand_for() {
        let points: Vec<_> = (0..6400).map(point).collect();
        let day = NaiveDate::default();
        let entries: Vec<_> = samples(&points, 64)
            .into_iter()
            .map(|sample| Entry::Sample { channel: 1, day, sample: Box::new(sample) })
            .collect();
        let shown = thinned(&entries, 6399, 32, Aggregate::None);
        assert_eq!((shown.len(), shown[0], shown[1], shown[31]), (32, 0.0, 200.0, 6399.0));
        assert_eq!(thinned(&entries, 6399, 33, Aggregate::Max)[..2], [199.0, 399.0]);
        assert_eq!(thinned(&entries, 6399, 33, Aggregate::Avg)[..2], [99.5, 299.5]);
    }

    #[test]
    fn no_more_points_are_shown_than_asked_for() {
        for total in [0, 1, 9, 10, 11, 99, 1000, 1234] {
            for aggregate in
                [Aggregate::None, Aggregate::Avg, Aggregate::Min, Aggregate::Max, Aggregate::MinMax]
            {
                for most in [10, 11, 100] {
                    let last = (total > 0).then(|| datapoint(point(total - 1)));
                    let shown = thin(&singles(total), last, most, aggregate);
                    assert!(shown.len() <= most, "{total} {aggregate:?} {most}: {}", shown.len());
                    assert!(shown.is_sorted_by_key(|point| point.point.time), "{aggregate:?}");
                }
            }
        }
    }
}
