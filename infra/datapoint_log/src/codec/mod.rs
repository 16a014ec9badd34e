//! Encoding of datapoints: columns, time deltas, packed integers; a few bytes per point. Encoded data is restored bit
//! for bit; any other bytes yield an error, never a panic.

mod block;
mod bytes;
mod chunk;
mod floats;
mod ints;
mod samples;
#[cfg(test)]
mod tests;

pub use block::{decode_block, encode_block};
pub use chunk::{decode_chunk, encode_chunk};
pub use samples::{Sample, decode_firsts, decode_samples, encode_samples, samples};

/// Points of one block or chunk at most; a larger number is not believed.
pub const MAX_POINTS: usize = 1 << 17;

/// The bytes are not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CodecError {
    /// They end too early.
    #[error("encoded datapoints end too early")]
    Truncated,
    /// They contradict themselves.
    #[error("encoded datapoints are malformed")]
    Malformed,
    /// They were written by another version.
    #[error("datapoints are encoded in a way that this version does not know")]
    Version,
}
