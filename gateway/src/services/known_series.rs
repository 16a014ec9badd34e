//! Channels of series by the bytes that name these in requests: labels that are sent every few seconds are not read and compared anew each time.
//!
//! Bytes lead to labels, always to the same, and labels lead to a channel, to the same as long as the catalog's labelling stays. With
//! another labelling, everything is forgotten. It is the same for all users: a series belongs to the channel that has its labels.

use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use uuid::Uuid;

use super::catalog::{Catalog, KnownChannel};

/// Series and bytes of their names of one generation at most; there are two.
const SERIES: usize = 100_000;
const BYTES: usize = 16 << 20;
/// Bytes of a name at most: labels may have some more, in letters outside of ASCII.
const NAME: usize = 16 << 10;

/// The channel of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SeriesChannel {
    pub(crate) id: Uuid,
    pub(crate) number: i32,
}

impl From<&KnownChannel> for SeriesChannel {
    fn from(channel: &KnownChannel) -> Self {
        Self { id: channel.id, number: channel.number }
    }
}

type Generation = HashMap<Box<[u8]>, SeriesChannel>;

#[derive(Debug, Default)]
struct Generations {
    /// The catalog's, by which the channels were found.
    labelling: u64,
    young: Generation,
    /// Of the keys in it.
    young_bytes: usize,
    /// Was young until that was full. A series that is asked for becomes young again; the rest is forgotten next time.
    old: Generation,
}

/// The series of a gateway that were seen last.
#[derive(Debug, Default)]
pub(crate) struct KnownSeries(RwLock<Generations>);

impl KnownSeries {
    /// The channels of the series that `keys` name, as `catalog` finds them; none for those that are not known.
    pub(crate) fn look_up<'a>(
        &self,
        catalog: &Catalog,
        keys: impl Iterator<Item = &'a [u8]>,
    ) -> Vec<Option<SeriesChannel>> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if known.labelling != catalog.labelling() {
            return keys.map(|_| None).collect();
        }
        let mut aging = Vec::new();
        let look_up = |key: &'a [u8]| {
            known.young.get(key).copied().or_else(|| {
                let channel = *known.old.get(key)?;
                aging.push((key, channel));
                Some(channel)
            })
        };
        let found = keys.map(look_up).collect();
        drop(known);
        if !aging.is_empty() {
            self.remember(catalog, aging.into_iter());
        }
        found
    }

    /// Remembers channels that `catalog` has found for series.
    pub(crate) fn remember<'a>(
        &self,
        catalog: &Catalog,
        found: impl Iterator<Item = (&'a [u8], SeriesChannel)>,
    ) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // A request may hold an older catalog than another one, which has found channels by a newer.
        if known.labelling > catalog.labelling() {
            return;
        }
        if known.labelling < catalog.labelling() {
            *known = Generations { labelling: catalog.labelling(), ..Generations::default() };
        }
        found.for_each(|(key, channel)| known.add(key, channel));
    }
}

impl Generations {
    fn add(&mut self, key: &[u8], channel: SeriesChannel) {
        if key.len() > NAME {
            return;
        }
        if self.young.len() >= SERIES || self.young_bytes + key.len() > BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        if self.young.insert(key.into(), channel).is_none() {
            self.young_bytes += key.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(number: i32) -> SeriesChannel {
        SeriesChannel { id: Uuid::nil(), number }
    }

    fn numbers(known: &KnownSeries, catalog: &Catalog, keys: &[&str]) -> Vec<Option<i32>> {
        let found = known.look_up(catalog, keys.iter().map(|key| key.as_bytes()));
        found.into_iter().map(|found| found.map(|channel| channel.number)).collect()
    }

    #[test]
    fn another_labelling_forgets_everything() {
        let (known, before, after) = (KnownSeries::default(), Catalog::default(), Catalog::relabelled(1));
        known.remember(&before, [(&b"a"[..], channel(1))].into_iter());
        assert_eq!(numbers(&known, &before, &["a", "b"]), [Some(1), None]);
        assert_eq!(numbers(&known, &after, &["a"]), [None]);
        known.remember(&after, [(&b"b"[..], channel(2))].into_iter());
        assert_eq!(numbers(&known, &after, &["a", "b"]), [None, Some(2)]);
        // A request that still holds the catalog of before neither sees nor brings anything.
        known.remember(&before, [(&b"a"[..], channel(1))].into_iter());
        assert_eq!(numbers(&known, &before, &["b"]), [None]);
        assert_eq!(numbers(&known, &after, &["a", "b"]), [None, Some(2)]);
    }

    #[test]
    fn it_is_bounded_and_keeps_the_series_that_are_asked_for() {
        let (known, catalog) = (KnownSeries::default(), Catalog::default());
        known.remember(&catalog, [(&b"kept"[..], channel(-1)), (&b"lost"[..], channel(-2))].into_iter());
        for first in (0..4 * SERIES).step_by(SERIES / 2) {
            let keys: Vec<_> = (first..first + SERIES / 2).map(|number| number.to_string()).collect();
            known.remember(&catalog, keys.iter().map(|key| (key.as_bytes(), channel(0))));
            assert_eq!(numbers(&known, &catalog, &["kept"]), [Some(-1)]);
        }
        assert_eq!(numbers(&known, &catalog, &["lost"]), [None]);
        let generations = known.0.read().unwrap();
        assert!(generations.young.len() <= SERIES && generations.old.len() <= SERIES);
    }

    #[test]
    fn long_names_are_bounded_by_their_bytes() {
        let (known, catalog) = (KnownSeries::default(), Catalog::default());
        let keys: Vec<_> = (0..5000).map(|number| format!("{number:010000}")).collect();
        known.remember(&catalog, keys.iter().map(|key| (key.as_bytes(), channel(0))));
        known.remember(&catalog, [("x".repeat(1 << 20).as_bytes(), channel(0))].into_iter());
        let generations = known.0.read().unwrap();
        let bytes = |generation: &Generation| generation.keys().map(|key| key.len()).sum::<usize>();
        assert_eq!(bytes(&generations.young), generations.young_bytes);
        assert!(bytes(&generations.young) <= BYTES && bytes(&generations.old) <= BYTES);
    }
}
