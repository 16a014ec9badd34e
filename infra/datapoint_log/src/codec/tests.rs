use rand::{Rng, SeedableRng, rngs::StdRng};
use uuid::Uuid;

use super::{
    CodecError,
    bytes::{Reader, Writer, varint_len},
    decode_block, decode_chunk, decode_firsts, decode_samples, encode_block, encode_chunk, encode_samples,
    floats, ints, samples,
};
use crate::{ChunkPoint, Origin, Point};

const ROUNDS: u64 = 400;

/// Typical numbers: far apart, close together, equal, at the limits.
fn numbers(random: &mut StdRng) -> Vec<i64> {
    let kind = random.random_range(0..5);
    let base: i64 = random.random();
    let count = random.random_range(0..300);
    let mut number = |index: i64| match kind {
        0 => random.random(),
        1 => base.wrapping_add(index * 1_000_000 + random.random_range(-500..500)),
        2 => base,
        3 => [i64::MIN, i64::MAX, 0, -1][random.random_range(0..4)],
        _ if random.random_bool(0.01) => random.random(),
        _ => index % 7,
    };
    (0..count).map(&mut number).collect()
}

fn values(random: &mut StdRng) -> Vec<f64> {
    let kind = random.random_range(0..5);
    let count = random.random_range(0..300);
    let odd =
        [0.0, -0.0, f64::MAX, f64::MIN_POSITIVE, 5e-324, -1.5, 0.1 + 0.2, 1e22, 9_007_199_254_740_993.0];
    let mut value = || match kind {
        0 => f64::from_bits(random.random()),
        1 => f64::from(random.random_range(-40_000..90_000)) / 100.0,
        2 => f64::from(random.random_range(0..2)),
        3 => odd[random.random_range(0..odd.len())],
        _ => random.random_range(20.0..30.0),
    };
    (0..count).map(|_| value()).collect()
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_column_of_integers_is_restored() {
    for seed in 0..ROUNDS {
        let numbers = numbers(&mut StdRng::seed_from_u64(seed));
        let mut out = Writer::default();
        ints::write(&mut out, &numbers);
        let mut input = Reader(&out.0);
        assert_eq!(ints::read(&mut input, numbers.len()), Ok(numbers), "seed {seed}");
        assert!(input.0.is_empty(), "seed {seed}");
    }
}

#[test]
fn every_float_is_restored_bit_for_bit() {
    for seed in 0..ROUNDS {
        let values = values(&mut StdRng::seed_from_u64(seed));
        let mut out = Writer::default();
        floats::write(&mut out, &values);
        let read = floats::read(&mut Reader(&out.0), values.len()).unwrap();
        assert_eq!(bits(&read), bits(&values), "seed {seed}");
    }
}

fn origin(random: &mut StdRng) -> Origin {
    let id = Uuid::from_u128(random.random());
    if random.random() { Origin::User(id) } else { Origin::Token(id) }
}

fn points(random: &mut StdRng) -> Vec<Point> {
    let channels = random.random_range(1..50);
    let values: Vec<_> = values(random).into_iter().filter(|value| value.is_finite()).collect();
    let times = numbers(random);
    values
        .into_iter()
        .zip(times.into_iter().chain(std::iter::repeat(7)))
        .map(|(value, time)| Point { channel: random.random_range(1..=channels), time, value })
        .collect()
}

#[test]
fn blocks_come_back_by_channel_one_after_the_other() {
    for seed in 0..ROUNDS {
        let mut random = StdRng::seed_from_u64(seed);
        let (one, two) = (origin(&mut random), origin(&mut random));
        let (mut first, mut second) = (points(&mut random), points(&mut random));
        let given = first.clone();
        let bytes = [encode_block(one, &mut first), encode_block(two, &mut second)].concat();
        let mut rest = bytes.as_slice();
        assert_eq!(decode_block(&mut rest), Ok((one, first.clone())), "seed {seed}");
        assert_eq!(decode_block(&mut rest), Ok((two, second)), "seed {seed}");
        assert!(rest.is_empty());
        for channel in 1..50 {
            let of = |points: &[Point]| -> Vec<Point> {
                points.iter().copied().filter(|point| point.channel == channel).collect()
            };
            assert_eq!(of(&first), of(&given), "seed {seed}: points of one channel change places");
        }
    }
}

#[test]
fn chunks_come_back() {
    for seed in 0..ROUNDS {
        let mut random = StdRng::seed_from_u64(seed);
        let of = |point: Point| ChunkPoint {
            time: point.time,
            value: point.value,
            position: i64::from(point.channel) << 20,
            index: point.channel as u32,
        };
        let points: Vec<_> = points(&mut random).into_iter().map(of).collect();
        assert_eq!(decode_chunk(&encode_chunk(&points)), Ok(points), "seed {seed}");
    }
}

#[test]
fn samples_come_back_and_stand_for_all_points() {
    for seed in 0..ROUNDS {
        let mut random = StdRng::seed_from_u64(seed);
        let of = |point: Point| ChunkPoint { time: point.time, value: point.value, position: 5, index: 1 };
        let points: Vec<_> = points(&mut random).into_iter().map(of).collect();
        for parts in [1, 8, 64] {
            let samples = samples(&points, parts);
            let encoded = encode_samples(&samples);
            assert_eq!(decode_samples(&encoded), Ok(samples.clone()), "seed {seed}");
            let firsts = samples.iter().map(|sample| (sample.count, sample.first)).collect();
            assert_eq!(decode_firsts(&encoded), Ok(firsts), "seed {seed}");
            assert_eq!(samples.iter().map(|sample| sample.count as usize).sum::<usize>(), points.len());
            let least = points.iter().map(|point| point.value).min_by(f64::total_cmp);
            let sampled = samples.iter().map(|sample| sample.min.value).min_by(f64::total_cmp);
            assert!(least == sampled, "seed {seed}: {least:?} {sampled:?}");
            assert_eq!(samples.first().map(|sample| sample.first), points.first().copied());
        }
    }
}

/// Truncated, changed or random bytes yield an error or other points, never a panic or a huge allocation.
#[test]
fn bytes_that_were_not_encoded_do_no_harm() {
    for seed in 0..60 {
        let mut random = StdRng::seed_from_u64(seed);
        let origin = origin(&mut random);
        let whole = encode_block(origin, &mut points(&mut random));
        for end in 0..whole.len() {
            assert!(decode_block(&mut &whole[..end]).is_err(), "seed {seed}, {end} bytes");
        }
        for _ in 0..20 {
            let mut changed = whole.clone();
            let place = random.random_range(0..changed.len());
            changed[place] = random.random();
            let _ = decode_block(&mut changed.as_slice());
            let _ = decode_chunk(&changed);
            let _ = decode_samples(&changed);
            let _ = decode_firsts(&changed);
        }
        let made_up: Vec<u8> = (0..random.random_range(0..200)).map(|_| random.random()).collect();
        let with_version = [&[1_u8][..], &made_up].concat();
        let _ = decode_block(&mut with_version.as_slice());
        let _ = decode_chunk(&with_version);
    }
    assert_eq!(decode_chunk(&[2]), Err(CodecError::Version));
}

#[test]
fn the_length_of_a_number_is_known_before() {
    for shift in 0..64 {
        for number in [1_u64 << shift, (1_u64 << shift) - 1] {
            let mut out = Writer::default();
            out.varint(number);
            assert_eq!(out.0.len(), varint_len(number), "{number}");
        }
    }
}

/// The design's assumption: a batch of 1,000 decimals of 500 channels.
#[test]
fn a_point_of_a_sensor_takes_a_few_bytes() {
    let mut random = StdRng::seed_from_u64(1);
    let mut points: Vec<_> = (0..1000)
        .map(|index| Point {
            channel: 1 + index % 500,
            time: 1_760_000_000_000_000,
            value: f64::from(random.random_range(2000..3000)) / 100.0,
        })
        .collect();
    let bytes = encode_block(Origin::User(Uuid::nil()), &mut points).len();
    assert!(bytes < 2000, "{bytes} bytes for 1000 points");
}
