//! One batch as it is sent, logged and announced: its origin, then its points by channel, column by column.

use uuid::Uuid;

use super::{
    CodecError, MAX_POINTS,
    bytes::{Reader, Writer},
    floats, ints,
};
use crate::{Origin, Point};

const VERSION: u8 = 1;

/// Encodes `points`, which are brought into the order of their channels; points of one channel keep theirs.
pub fn encode_block(origin: Origin, points: &mut [Point]) -> Vec<u8> {
    points.sort_by_key(|point| point.channel);
    let mut out = Writer(Vec::with_capacity(32 + points.len() * 6));
    out.byte(VERSION);
    write_origin(&mut out, origin);
    out.varint(points.len() as u64);
    let runs: Vec<_> = points.chunk_by(|one, next| one.channel == next.channel).collect();
    let column = |of: fn(&&[Point]) -> i64| runs.iter().map(of).collect::<Vec<_>>();
    out.varint(runs.len() as u64);
    ints::write(&mut out, &column(|run| i64::from(run[0].channel)));
    ints::write(&mut out, &column(|run| run.len() as i64));
    ints::write(&mut out, &points.iter().map(|point| point.time).collect::<Vec<_>>());
    floats::write(&mut out, &points.iter().map(|point| point.value).collect::<Vec<_>>());
    out.0
}

/// Decodes the block at the beginning of `bytes` and moves `bytes` behind it.
///
/// # Errors
/// [`CodecError`]; bytes that are no block never do more than that.
pub fn decode_block(bytes: &mut &[u8]) -> Result<(Origin, Vec<Point>), CodecError> {
    let mut input = Reader(bytes);
    if input.byte()? != VERSION {
        return Err(CodecError::Version);
    }
    let origin = read_origin(&mut input)?;
    let count = input.count(MAX_POINTS)?;
    let runs = input.count(count)?;
    let channels = ints::read(&mut input, runs)?;
    let lengths = ints::read(&mut input, runs)?;
    let times = ints::read(&mut input, count)?;
    let values = floats::read(&mut input, count)?;
    let mut points = Vec::with_capacity(count);
    let mut rest = times.into_iter().zip(values);
    for (channel, length) in channels.into_iter().zip(lengths) {
        let channel = i32::try_from(channel).map_err(|_| CodecError::Malformed)?;
        let length = usize::try_from(length).map_err(|_| CodecError::Malformed)?;
        let run = rest.by_ref().take(length);
        points.extend(run.map(|(time, value)| Point { channel, time, value }));
    }
    if points.len() != count {
        return Err(CodecError::Malformed);
    }
    *bytes = input.0;
    Ok((origin, points))
}

const USER: u8 = 1;
const TOKEN: u8 = 2;

fn write_origin(out: &mut Writer, origin: Origin) {
    let (kind, id) = match origin {
        Origin::User(id) => (USER, id),
        Origin::Token(id) => (TOKEN, id),
    };
    out.byte(kind);
    out.bytes(id.as_bytes());
}

fn read_origin(input: &mut Reader<'_>) -> Result<Origin, CodecError> {
    let kind = input.byte()?;
    let id = Uuid::from_slice(input.bytes(16)?).map_err(|_| CodecError::Malformed)?;
    match kind {
        USER => Ok(Origin::User(id)),
        TOKEN => Ok(Origin::Token(id)),
        _ => Err(CodecError::Malformed),
    }
}
