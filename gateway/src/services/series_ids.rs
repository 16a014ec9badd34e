//! Ids of channels that are made for series: they follow from the labels, so that gateways that see a series at the same time make
//! one channel, and so that a channel which a user made is distinguished from them, whatever its labels.

use signalbox_domain::monitoring::Labels;
use uuid::Uuid;

/// Names the ids of channels that are made for series.
const SERIES_IDS: Uuid = Uuid::from_u128(0x7e0c_2f6b_2d0f_5a53_9a39_0b6f_5d5c_61d4);
/// The version of these ids; those of channels that users make are of version 7.
const VERSION: usize = 5;
/// How often a series is deleted and made anew before its channel is no longer recognised. Plugins make channels with ids of that
/// version, too, and each of these is compared with so many.
const GENERATIONS: usize = 64;

/// The ids that a channel for the series with `labels` may have, in order: the first that no channel has had is taken.
///
/// # Errors
/// Labels that cannot be encoded.
pub(crate) fn series_ids(labels: &Labels) -> serde_json::Result<impl Iterator<Item = Uuid>> {
    let labels = serde_json::to_vec(labels)?;
    Ok((0..u32::MAX).map(move |generation: u32| {
        let mut name = labels.clone();
        name.extend_from_slice(&generation.to_le_bytes());
        Uuid::new_v5(&SERIES_IDS, &name)
    }))
}

/// Whether the channel `id` was made for the series with `labels`, and still has these.
pub(crate) fn is_made_for_series(id: Uuid, labels: &Labels) -> bool {
    id.get_version_num() == VERSION
        && !labels.is_empty()
        && series_ids(labels).is_ok_and(|mut ids| ids.by_ref().take(GENERATIONS).any(|one| one == id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_of_series_are_distinguished_from_those_of_users_and_plugins() {
        let labels: Labels = [("_field".to_owned(), "a".to_owned())].into();
        let other: Labels = [("_field".to_owned(), "b".to_owned())].into();
        for id in series_ids(&labels).unwrap().take(GENERATIONS) {
            assert!(is_made_for_series(id, &labels));
            assert!(!is_made_for_series(id, &other), "it has other labels now");
        }
        assert!(!is_made_for_series(Uuid::new_v5(&Uuid::NAMESPACE_URL, b"plugin"), &labels));
        assert!(!is_made_for_series(Uuid::from_u128(0x018f_0000_0000_7000_8000_0000_0000_0001), &labels));
    }
}
