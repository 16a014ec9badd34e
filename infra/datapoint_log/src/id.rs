//! The public id of a datapoint: its place in the log with a keyed checksum (SipHash-2-4), in the shape of a UUID
//! (version 8). It finds one point without an index on points, and it cannot be guessed.

use signalbox_boxed::boxed;
use siphasher::sip::SipHasher24;
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    Place,
    point::{day_number, day_of_number},
};

const POSITION_BITS: u32 = 48;
const INDEX_BITS: u32 = 20;
const CHECK_BITS: u32 = 38;

/// The secret that ids are checked with; equal on every gateway.
#[derive(Clone, Copy)]
pub struct IdKey(u128);

impl std::fmt::Debug for IdKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IdKey")
    }
}

impl IdKey {
    /// The key of this installation.
    ///
    /// # Errors
    /// The database's error.
    #[boxed]
    pub async fn load(pool: &PgPool) -> Result<Self, sqlx::Error> {
        let secret: Uuid = sqlx::query_scalar("SELECT secret FROM datapoint_key").fetch_one(pool).await?;
        Ok(Self(secret.as_u128()))
    }

    /// The public id of the point at `place`.
    pub fn id(self, place: Place) -> Uuid {
        let plain = u128::from(day_number(place.day)) << (POSITION_BITS + INDEX_BITS)
            | u128::from(place.position as u64 & ((1 << POSITION_BITS) - 1)) << INDEX_BITS
            | u128::from(place.index & ((1 << INDEX_BITS) - 1));
        shape(plain << CHECK_BITS | u128::from(self.check(plain)))
    }

    /// The place that `id` names, unless it is made up.
    pub fn place(self, id: Uuid) -> Option<Place> {
        let bits = unshape(id)?;
        let (plain, check) = (bits >> CHECK_BITS, bits as u64 & ((1 << CHECK_BITS) - 1));
        (check == self.check(plain)).then(|| Place {
            day: day_of_number((plain >> (POSITION_BITS + INDEX_BITS)) as u16),
            position: (plain >> INDEX_BITS & ((1 << POSITION_BITS) - 1)) as i64,
            index: plain as u32 & ((1 << INDEX_BITS) - 1),
        })
    }

    fn check(self, plain: u128) -> u64 {
        let hasher = SipHasher24::new_with_key(&self.0.to_le_bytes());
        hasher.hash(&plain.to_le_bytes()) & ((1 << CHECK_BITS) - 1)
    }
}

/// 122 bits around version and variant.
fn shape(bits: u128) -> Uuid {
    let (high, middle, low) = (bits >> 74, bits >> 62 & 0xfff, bits & ((1 << 62) - 1));
    Uuid::from_u128(high << 80 | 8 << 76 | middle << 64 | 0b10 << 62 | low)
}

fn unshape(id: Uuid) -> Option<u128> {
    let bits = id.as_u128();
    let is_ours = bits >> 76 & 0xf == 8 && bits >> 62 & 0b11 == 0b10;
    is_ours.then_some((bits >> 80) << 74 | (bits >> 64 & 0xfff) << 62 | bits & ((1 << 62) - 1))
}

#[cfg(test)]
mod tests {
    use chrono::NaiveDate;
    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    fn place(random: &mut StdRng) -> Place {
        Place {
            day: day_of_number(random.random()),
            position: random.random_range(0..1 << POSITION_BITS),
            index: random.random_range(0..1 << INDEX_BITS),
        }
    }

    #[test]
    fn every_place_is_restored_and_ids_differ() {
        let (key, mut random) = (IdKey(0x1234_5678 << 70), StdRng::seed_from_u64(1));
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let place = place(&mut random);
            let id = key.id(place);
            assert_eq!(key.place(id), Some(place));
            assert_eq!(id.get_version_num(), 8);
            assert_eq!(Uuid::parse_str(&id.to_string()), Ok(id));
            assert!(seen.insert(id));
        }
    }

    #[test]
    fn ids_that_clients_keep_stay_what_they_are() {
        let key = IdKey(u128::from_le_bytes(std::array::from_fn(|index| index as u8)));
        let place =
            Place { day: NaiveDate::from_ymd_opt(2026, 3, 1).unwrap(), position: 1_234_567, index: 89 };
        assert_eq!(key.id(place).to_string(), "50210000-0012-8d68-9c00-1678576b7fea");
    }

    #[test]
    fn a_changed_or_foreign_id_names_nothing() {
        let (key, mut random) = (IdKey(7), StdRng::seed_from_u64(2));
        let place = Place { day: NaiveDate::from_ymd_opt(2026, 3, 1).unwrap(), position: 12, index: 3 };
        let id = key.id(place);
        for bit in 0..128 {
            assert_eq!(key.place(Uuid::from_u128(id.as_u128() ^ 1 << bit)), None, "bit {bit}");
        }
        assert_eq!(IdKey(8).place(id), None);
        for _ in 0..10_000 {
            assert_eq!(key.place(Uuid::from_u128(random.random())), None);
        }
    }
}
