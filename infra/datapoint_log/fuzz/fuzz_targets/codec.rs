//! Bytes that were never encoded: decoding them does no harm, and what they decode to is encoded and decoded again
//! without loss.

#![no_main]

use libfuzzer_sys::fuzz_target;
use signalbox_datapoint_log::codec::{
    decode_block, decode_chunk, decode_samples, encode_block, encode_chunk, encode_samples,
};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => block(bytes),
        1 => chunk(bytes),
        _ => samples(bytes),
    }
});

fn block(mut bytes: &[u8]) {
    let Ok((origin, points)) = decode_block(&mut bytes) else { return };
    let mut again = points.clone();
    let encoded = encode_block(origin, &mut again);
    let (known, decoded) = decode_block(&mut encoded.as_slice()).expect("what was encoded is decoded");
    assert_eq!(known, origin);
    assert_eq!(bits(decoded.iter().map(|point| point.value)), bits(again.iter().map(|point| point.value)));
    assert_eq!(decoded.len(), points.len());
}

fn chunk(bytes: &[u8]) {
    let Ok(points) = decode_chunk(bytes) else { return };
    let decoded = decode_chunk(&encode_chunk(&points)).expect("what was encoded is decoded");
    assert_eq!(bits(decoded.iter().map(|point| point.value)), bits(points.iter().map(|point| point.value)));
    assert!(decoded.iter().zip(&points).all(|(one, other)| one.order() == other.order()));
}

fn samples(bytes: &[u8]) {
    let Ok(samples) = decode_samples(bytes) else { return };
    let decoded = decode_samples(&encode_samples(&samples)).expect("what was encoded is decoded");
    assert_eq!(decoded.len(), samples.len());
}

/// Floats by their bits, as NaN differs from itself.
fn bits(values: impl Iterator<Item = f64>) -> Vec<u64> {
    values.map(f64::to_bits).collect()
}
