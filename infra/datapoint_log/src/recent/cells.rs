//! Values of a batch, put together by cells: 64 channels and 67 seconds, of which the database has a row.

use crate::Point;

/// Bits of a channel's integer, and of a time in microseconds, by which those of a cell differ.
const CHANNEL_BITS: u32 = 6;
const TIME_BITS: u32 = 26;
/// Bytes of a value in a row.
const POINT: usize = 1 + 4 + 8;

/// Channels and times that share a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cell {
    pub(super) channels: i32,
    pub(super) slot: i64,
}

impl Cell {
    fn of(point: &Point) -> Self {
        Self { channels: point.channel >> CHANNEL_BITS, slot: point.time >> TIME_BITS }
    }

    /// The points that a row of this cell holds; none of bytes that are not whole points.
    pub(super) fn points(self, row: &[u8]) -> impl Iterator<Item = Point> {
        row.chunks_exact(POINT).filter_map(move |bytes| {
            let (channel, rest) = bytes.split_first()?;
            let (time, value) = rest.split_first_chunk::<4>()?;
            Some(Point {
                channel: (self.channels << CHANNEL_BITS) | i32::from(*channel),
                time: (self.slot << TIME_BITS) | i64::from(u32::from_le_bytes(*time)),
                value: f64::from_le_bytes(value.try_into().ok()?),
            })
        })
    }
}

/// The identity of a value: equal for values that PostgreSQL compares as equal, so both zeros are one.
type Key = (Cell, i32, i64, u64);

fn key(point: &Point) -> Key {
    (Cell::of(point), point.channel, point.time, (point.value + 0.0).to_bits())
}

/// Different values, each with its first place in the batch.
#[derive(Debug)]
pub(super) struct Given<'a> {
    points: &'a [Point],
    /// In the order of cells.
    entries: Vec<(Key, usize)>,
    is_taken: Vec<bool>,
}

/// The values that a batch brings to a cell.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) cell: Cell,
    pub(super) first_time: i64,
    pub(super) last_time: i64,
    /// A bit for each channel.
    pub(super) bits: i64,
    /// As a row has them.
    pub(super) row: Vec<u8>,
}

impl<'a> Given<'a> {
    pub(super) fn of(points: &'a [Point]) -> Self {
        let mut entries: Vec<_> =
            points.iter().enumerate().map(|(place, point)| (key(point), place)).collect();
        entries.sort_unstable();
        entries.dedup_by_key(|(key, _)| *key);
        let is_taken = vec![false; entries.len()];
        Self { points, entries, is_taken }
    }

    /// Notes that another batch has `point`; false if this one does not.
    pub(super) fn take(&mut self, point: &Point) -> bool {
        let found = self.entries.binary_search_by_key(&key(point), |(key, _)| *key);
        if let Ok(index) = found {
            self.is_taken[index] = true;
        }
        found.is_ok()
    }

    /// The places of those that no other batch has.
    fn free(&self) -> impl Iterator<Item = &(Key, usize)> {
        self.entries.iter().zip(&self.is_taken).filter(|(_, is_taken)| !**is_taken).map(|(entry, _)| entry)
    }

    /// Those that no other batch has, in the order given.
    pub(super) fn new_points(&self) -> Vec<Point> {
        let mut places: Vec<_> = self.free().map(|(_, place)| *place).collect();
        places.sort_unstable();
        places.into_iter().map(|place| self.points[place]).collect()
    }

    /// Those that no other batch has, by cells, in the order of these.
    pub(super) fn parts(&self) -> Vec<Part> {
        let free: Vec<_> = self.free().collect();
        let cells = free.chunk_by(|one, other| one.0.0 == other.0.0);
        cells.filter_map(|entries| self.part(entries)).collect()
    }

    fn part(&self, entries: &[&(Key, usize)]) -> Option<Part> {
        let cell = entries.first()?.0.0;
        let mut places: Vec<_> = entries.iter().map(|(_, place)| *place).collect();
        places.sort_unstable();
        let all = self.points;
        let points = || places.iter().map(move |place| &all[*place]);
        let mut row = Vec::with_capacity(places.len() * POINT);
        let mut bits = 0;
        for point in points() {
            // Cut to the bits in which they differ.
            let (channel, time) =
                (point.channel & ((1 << CHANNEL_BITS) - 1), point.time & ((1 << TIME_BITS) - 1));
            bits |= 1_i64 << channel;
            row.push(channel as u8);
            row.extend((time as u32).to_le_bytes());
            row.extend(point.value.to_le_bytes());
        }
        let times = || points().map(|point| point.time);
        Some(Part { cell, first_time: times().min()?, last_time: times().max()?, bits, row })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(channel: i32, time: i64, value: f64) -> Point {
        Point { channel, time, value }
    }

    #[test]
    fn a_row_gives_back_its_points_in_their_order() {
        let slot = 1_i64 << TIME_BITS;
        let given = [
            point(70, 25 * slot + 7, -0.0),
            point(64, 25 * slot + slot - 1, 1.5),
            point(127, 25 * slot, f64::MIN_POSITIVE),
            point(70, 25 * slot + 6, f64::MAX),
        ];
        let parts = Given::of(&given).parts();
        let [part] = parts.as_slice() else { panic!("{parts:?}") };
        assert_eq!(part.cell, Cell { channels: 1, slot: 25 });
        assert_eq!((part.first_time, part.last_time), (25 * slot, 26 * slot - 1));
        assert_eq!(part.bits, 1 | (1 << 6) | i64::MIN);
        let read: Vec<_> = part.cell.points(&part.row).collect();
        assert_eq!(read, given);
        assert!(read[0].value.is_sign_negative());
    }

    #[test]
    fn values_before_1970_and_of_other_cells_have_rows_of_their_own() {
        let given = [point(1, -1, 1.0), point(1, 0, 1.0), point(64, 0, 1.0), point(1, 1 << TIME_BITS, 1.0)];
        let parts = Given::of(&given).parts();
        let cells: Vec<_> = parts.iter().map(|part| (part.cell.channels, part.cell.slot)).collect();
        assert_eq!(cells, [(0, -1), (0, 0), (0, 1), (1, 0)]);
        let read = parts.iter().flat_map(|part| part.cell.points(&part.row));
        assert_eq!(read.map(|point| point.time).collect::<Vec<_>>(), [-1, 0, 1 << TIME_BITS, 0]);
    }

    #[test]
    fn what_others_have_is_left_out() {
        let points = [point(1, 5, 1.0), point(1, 5, 2.0), point(1, 5, 1.0), point(1, 4, 0.0)];
        let mut given = Given::of(&points);
        assert_eq!(given.new_points(), [points[0], points[1], points[3]]);
        assert!(!given.take(&point(1, 6, 1.0)));
        assert!(given.take(&point(1, 4, -0.0)) && given.take(&point(1, 5, 1.0)));
        assert_eq!(given.new_points(), [points[1]]);
        assert_eq!(given.parts().iter().map(|part| part.row.len()).collect::<Vec<_>>(), [POINT]);
    }
}
