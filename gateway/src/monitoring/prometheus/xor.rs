//! Chunks of samples as Prometheus stores and streams them, by its published format: times as differences of differences, values
//! as what differs from the one before (after "Gorilla: A Fast, Scalable, In-Memory Time Series Database", Pelkonen et al., 2015).

use super::messages::{Chunk, Sample, XOR};

/// Samples of a chunk at most, as there.
const SAMPLES: usize = 120;

/// `samples`, which are in the order of time, as chunks.
pub(super) fn chunks(samples: &[Sample]) -> Vec<Chunk> {
    samples.chunks(SAMPLES).filter_map(chunk).collect()
}

fn chunk(samples: &[Sample]) -> Option<Chunk> {
    let (first, last) = (samples.first()?, samples.last()?);
    let mut bits = Bits::default();
    bits.push(samples.len() as u64, 16);
    bits.push_varint(zigzag(first.timestamp));
    bits.push(first.value.to_bits(), 64);
    let mut values = Values { before: first.value.to_bits(), window: None };
    let (mut time, mut step) = (first.timestamp, 0);
    for (index, sample) in samples.iter().enumerate().skip(1) {
        let next = sample.timestamp - time;
        if index == 1 {
            bits.push_varint(next as u64);
        } else {
            push_change_of_step(&mut bits, next - step);
        }
        values.push(&mut bits, sample.value.to_bits());
        (time, step) = (sample.timestamp, next);
    }
    let data = bits.bytes;
    Some(Chunk { min_time: first.timestamp, max_time: last.timestamp, encoding: XOR, data })
}

/// A signed number whose small values, of either sign, are small.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn push_change_of_step(bits: &mut Bits, change: i64) {
    // Prefix, its bits, and bits of the change, for changes that fit.
    const FORMS: [(u64, u32, u32); 3] = [(0b10, 2, 14), (0b110, 3, 17), (0b1110, 4, 20)];
    let fits = |size: u32| (1 - (1 << (size - 1))..=1 << (size - 1)).contains(&change);
    if change == 0 {
        return bits.push(0, 1);
    }
    let (prefix, length, size) =
        FORMS.into_iter().find(|(_, _, size)| fits(*size)).unwrap_or((0b1111, 4, 64));
    bits.push(prefix, length);
    bits.push(change as u64, size);
}

/// The values of a chunk.
struct Values {
    before: u64,
    /// Leading and trailing bits of the last difference that were left out.
    window: Option<(u32, u32)>,
}

impl Values {
    fn push(&mut self, bits: &mut Bits, value: u64) {
        let difference = value ^ self.before;
        self.before = value;
        if difference == 0 {
            return bits.push(0, 1);
        }
        bits.push(1, 1);
        let (leading, trailing) = (difference.leading_zeros().min(31), difference.trailing_zeros());
        if let Some((before, after)) = self.window
            && leading >= before
            && trailing >= after
        {
            bits.push(0, 1);
            return bits.push(difference >> after, 64 - before - after);
        }
        self.window = Some((leading, trailing));
        let size = 64 - leading - trailing;
        bits.push(1, 1);
        bits.push(leading.into(), 5);
        // 64 is written as 0, which does not occur otherwise.
        bits.push((size % 64).into(), 6);
        bits.push(difference >> trailing, size);
    }
}

/// Bits, the most significant one of each byte first.
#[derive(Default)]
struct Bits {
    bytes: Vec<u8>,
    /// Free bits of the last byte.
    free: u32,
}

impl Bits {
    /// The lowest `count` bits of `value`.
    fn push(&mut self, value: u64, count: u32) {
        for place in (0..count).rev() {
            if self.free == 0 {
                self.bytes.push(0);
                self.free = 8;
            }
            self.free -= 1;
            if let Some(last) = self.bytes.last_mut() {
                *last |= (((value >> place) & 1) as u8) << self.free;
            }
        }
    }

    /// Seven bits in each byte, the lowest first; the highest bit says that more follow.
    fn push_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.push((value & 0x7f) | 0x80, 8);
            value >>= 7;
        }
        self.push(value, 8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(timestamp: i64, value: f64) -> Sample {
        Sample { value, timestamp }
    }

    #[test]
    fn a_chunk_has_the_published_bits() {
        // Count 0x0002; varint 2 for 1; 1.0; uvarint 1000; a difference to 2.0 of 11 bits: 1, 1, 5 bits 1, 6 bits 11, 11 bits.
        let found = chunks(&[sample(1, 1.0), sample(1001, 2.0)]);
        let [chunk] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((chunk.min_time, chunk.max_time, chunk.encoding), (1, 1001, XOR));
        let (head, rest) = chunk.data.split_at(13);
        assert_eq!(head, [0, 2, 2, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0xe8, 0x07]);
        assert_eq!(rest, [0b1100_0010, 0b0101_1111, 0b1111_1111]);
    }

    #[test]
    fn no_chunk_has_more_samples_than_those_of_prometheus() {
        let samples: Vec<_> = (0..241).map(|index| sample(index, 0.0)).collect();
        let found = chunks(&samples);
        let spans: Vec<_> = found.iter().map(|chunk| (chunk.min_time, chunk.max_time)).collect();
        assert_eq!(spans, [(0, 119), (120, 239), (240, 240)]);
        assert!(chunks(&[]).is_empty());
    }
}
