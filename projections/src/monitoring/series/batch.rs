//! Rows of the log, by the chunks that they change.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::NaiveDate;
use signalbox_datapoint_log::{ChunkPoint, Entry, LogRow, Tombstone, micros};

use super::{
    Datapoint,
    chunk::{ChunkKey, Names},
    hour_of,
    incomplete::Skipped,
    ranked::Ranked,
};

/// Contents of log rows, by chunk.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) chunks: BTreeMap<ChunkKey, Changes>,
    /// When rows of points arrived, by position, in microseconds since 1970.
    pub(super) arrivals: HashMap<i64, i64>,
    /// Rows that cannot be decoded.
    pub(super) skipped: Vec<Skipped>,
}

/// Points added to a chunk, and deletions from it.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) points: Vec<ChunkPoint>,
    pub(super) deleted: HashSet<(i64, u32)>,
}

impl Batch {
    /// Groups the contents of `rows`; those that cannot be decoded are left out.
    pub(super) fn of(rows: &[LogRow]) -> Self {
        let mut batch = Self::default();
        for row in rows {
            match row.entry() {
                Err(error) => batch.skipped.push(Skipped::new(row.day, error)),
                Ok(Entry::Points(points)) => {
                    batch.arrivals.insert(row.position, micros(row.recorded_at));
                    let present = points.into_iter().zip(0..).filter(|(point, _)| !point.is_cleared());
                    for (point, index) in present {
                        let key =
                            ChunkKey { channel: point.channel, hour: hour_of(point.time), day: row.day };
                        let place = (row.position, index);
                        let (position, index) = place;
                        let point = ChunkPoint { time: point.time, value: point.value, position, index };
                        batch.chunks.entry(key).or_default().points.push(point);
                    }
                }
                Ok(Entry::Deleted(tombstone)) => {
                    let changes = batch.chunks.entry(key_of(&tombstone)).or_default();
                    changes.deleted.insert((tombstone.position, tombstone.index));
                }
            }
        }
        for changes in batch.chunks.values_mut() {
            let Changes { points, deleted } = changes;
            points.retain(|point| !deleted.contains(&(point.position, point.index)));
            points.sort_unstable_by_key(ChunkPoint::order);
        }
        batch
    }

    /// The added points, in no order.
    pub(super) fn points(&self) -> impl Iterator<Item = Datapoint> {
        self.chunks.iter().flat_map(|(key, changes)| {
            changes.points.iter().map(|point| Datapoint { channel: key.channel, day: key.day, point: *point })
        })
    }

    /// The points with when they arrived.
    pub(super) fn ranked(&self) -> impl Iterator<Item = Ranked> {
        let arrived = |point: &Datapoint| self.arrivals.get(&point.point.position).copied();
        self.points().map(move |point| Ranked::new(point, arrived(&point)))
    }

    /// Days of the log with added points.
    pub(super) fn days(&self) -> HashSet<NaiveDate> {
        self.chunks.keys().map(|key| key.day).collect()
    }

    /// The rows of the chunks, which have no parts yet.
    pub(super) fn names(&self) -> Names {
        let mut names = Names::default();
        self.chunks.keys().for_each(|key| names.push(*key, 0));
        names
    }
}

fn key_of(tombstone: &Tombstone) -> ChunkKey {
    ChunkKey { channel: tombstone.channel, hour: hour_of(tombstone.time), day: tombstone.day }
}
