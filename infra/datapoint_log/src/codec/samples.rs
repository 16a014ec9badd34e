//! A chunk in a few samples: parts of equal size, each with its first, least and greatest point and its sum.

use super::{
    CodecError, MAX_POINTS,
    bytes::{Reader, Writer},
    chunk::{decode_chunk, encode_chunk},
    ints,
};
use crate::ChunkPoint;

const VERSION: u8 = 1;

/// Aggregates of a part of a chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// How many points it stands for.
    pub count: u32,
    /// Sum of their values.
    pub sum: f64,
    /// The earliest of them.
    pub first: ChunkPoint,
    /// The least of them.
    pub min: ChunkPoint,
    /// The greatest of them.
    pub max: ChunkPoint,
}

impl Sample {
    /// Aggregates of `points`; `None` if there are none.
    pub fn of(points: &[ChunkPoint]) -> Option<Self> {
        let (first, rest) = points.split_first()?;
        Some(rest.iter().fold(Self::one(*first), |sample, point| sample.with(&Self::one(*point))))
    }

    /// Aggregates of a single point.
    pub fn one(point: ChunkPoint) -> Self {
        Self { count: 1, sum: point.value, first: point, min: point, max: point }
    }

    /// Aggregates of both; `later` follows `self` in time.
    #[must_use]
    pub fn with(self, later: &Self) -> Self {
        Self {
            count: self.count + later.count,
            sum: self.sum + later.sum,
            first: self.first,
            min: if later.min.value < self.min.value { later.min } else { self.min },
            max: if later.max.value > self.max.value { later.max } else { self.max },
        }
    }
}

/// `points` in `parts` samples of equal size.
pub fn samples(points: &[ChunkPoint], parts: usize) -> Vec<Sample> {
    let bound = |part: usize| part * points.len() / parts;
    (0..parts).filter_map(|part| Sample::of(&points[bound(part)..bound(part + 1)])).collect()
}

/// Encodes `samples`.
pub fn encode_samples(samples: &[Sample]) -> Vec<u8> {
    let mut out = Writer::default();
    out.byte(VERSION);
    out.varint(samples.len() as u64);
    ints::write(&mut out, &samples.iter().map(|sample| i64::from(sample.count)).collect::<Vec<_>>());
    samples.iter().for_each(|sample| out.bytes(&sample.sum.to_le_bytes()));
    let columns: [fn(&Sample) -> ChunkPoint; 3] =
        [|sample| sample.first, |sample| sample.min, |sample| sample.max];
    for point in columns {
        let chunk = encode_chunk(&samples.iter().map(point).collect::<Vec<_>>());
        out.varint(chunk.len() as u64);
        out.bytes(&chunk);
    }
    out.0
}

/// Decodes what [`encode_samples`] has encoded.
///
/// # Errors
/// [`CodecError`]; bytes that are no samples never do more than that.
pub fn decode_samples(bytes: &[u8]) -> Result<Vec<Sample>, CodecError> {
    let mut input = Reader(bytes);
    let (counts, sums) = counts_and_sums(&mut input)?;
    let mut points = || points(&mut input, counts.len());
    let (first, min, max) = (points()?, points()?, points()?);
    let parts = counts.into_iter().zip(sums).zip(first.into_iter().zip(min).zip(max));
    let samples = parts.map(|((count, sum), ((first, min), max))| Sample { count, sum, first, min, max });
    Ok(samples.collect())
}

/// The count and the first point of each of the samples that [`encode_samples`] has encoded, without reading the rest.
///
/// # Errors
/// As [`decode_samples`].
pub fn decode_firsts(bytes: &[u8]) -> Result<Vec<(u32, ChunkPoint)>, CodecError> {
    let mut input = Reader(bytes);
    let (counts, _) = counts_and_sums(&mut input)?;
    let first = points(&mut input, counts.len())?;
    Ok(counts.into_iter().zip(first).collect())
}

fn counts_and_sums(input: &mut Reader<'_>) -> Result<(Vec<u32>, Vec<f64>), CodecError> {
    if input.byte()? != VERSION {
        return Err(CodecError::Version);
    }
    let count = input.count(MAX_POINTS)?;
    let counts = ints::read(input, count)?.into_iter().map(u32::try_from).collect::<Result<_, _>>();
    let sums = input.bytes(count * 8)?.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes));
    Ok((counts.map_err(|_| CodecError::Malformed)?, sums.collect()))
}

/// One point of each sample.
fn points(input: &mut Reader<'_>, count: usize) -> Result<Vec<ChunkPoint>, CodecError> {
    let length = input.count(input.0.len())?;
    let points = decode_chunk(input.bytes(length)?)?;
    if points.len() == count { Ok(points) } else { Err(CodecError::Malformed) }
}
