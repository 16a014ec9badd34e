//! Points of one channel as stored by the read model, with the log place of each.

use super::{
    CodecError, MAX_POINTS,
    bytes::{Reader, Writer},
    floats, ints,
};
use crate::ChunkPoint;

const VERSION: u8 = 1;

/// Encodes `points`.
pub fn encode_chunk(points: &[ChunkPoint]) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(16 + points.len() * 8));
    out.byte(VERSION);
    out.varint(points.len() as u64);
    let column = |of: fn(&ChunkPoint) -> i64| points.iter().map(of).collect::<Vec<_>>();
    ints::write(&mut out, &column(|point| point.time));
    floats::write(&mut out, &points.iter().map(|point| point.value).collect::<Vec<_>>());
    ints::write(&mut out, &column(|point| point.position));
    ints::write(&mut out, &column(|point| i64::from(point.index)));
    out.0
}

/// Decodes what [`encode_chunk`] has encoded.
///
/// # Errors
/// [`CodecError`]; bytes that are no chunk never do more than that.
pub fn decode_chunk(bytes: &[u8]) -> Result<Vec<ChunkPoint>, CodecError> {
    let mut input = Reader(bytes);
    if input.byte()? != VERSION {
        return Err(CodecError::Version);
    }
    let count = input.count(MAX_POINTS)?;
    let times = ints::read(&mut input, count)?;
    let values = floats::read(&mut input, count)?;
    let positions = ints::read(&mut input, count)?;
    let indexes = ints::read(&mut input, count)?;
    let places = positions.into_iter().zip(indexes);
    let points = times.into_iter().zip(values).zip(places).map(|((time, value), (position, index))| {
        let index = u32::try_from(index).map_err(|_| CodecError::Malformed)?;
        Ok(ChunkPoint { time, value, position, index })
    });
    points.collect()
}
