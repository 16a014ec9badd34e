//! A column of floats. Sensors usually send decimals with a few digits: those become integers, and every float is
//! restored bit for bit. Anything else is written unchanged.

use super::{
    CodecError,
    bytes::{Reader, Writer},
    ints,
};

/// Powers of ten that floats are tried with.
const SCALES: [f64; 7] = [1.0, 10.0, 100.0, 1e3, 1e4, 1e5, 1e6];
/// Integers below are floats exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// In place of a power: the floats themselves follow.
const RAW: u8 = 0xff;

pub(crate) fn write(out: &mut Writer, floats: &[f64]) {
    match decimals(floats) {
        Some((power, integers)) => {
            out.byte(power);
            ints::write(out, &integers);
        }
        None => {
            out.byte(RAW);
            floats.iter().for_each(|float| out.bytes(&float.to_le_bytes()));
        }
    }
}

pub(crate) fn read(input: &mut Reader<'_>, count: usize) -> Result<Vec<f64>, CodecError> {
    match input.byte()? {
        RAW => {
            let bytes = input.bytes(count.checked_mul(8).ok_or(CodecError::Malformed)?)?;
            Ok(bytes.as_chunks::<8>().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect())
        }
        power => {
            let scale = *SCALES.get(usize::from(power)).ok_or(CodecError::Malformed)?;
            let integers = ints::read(input, count)?;
            Ok(integers.into_iter().map(|integer| integer as f64 / scale).collect())
        }
    }
}

/// The floats as integers, with the power of ten that divides them.
fn decimals(floats: &[f64]) -> Option<(u8, Vec<i64>)> {
    let mut power = 0;
    let mut integers = Vec::with_capacity(floats.len());
    while integers.len() < floats.len() {
        match scaled(floats[integers.len()], SCALES[power]) {
            Some(integer) => integers.push(integer),
            // Values that fitted a smaller power need not fit a larger one bit for bit, so all are tried again.
            None if power + 1 < SCALES.len() => {
                power += 1;
                integers.clear();
            }
            None => return None,
        }
    }
    Some((power as u8, integers))
}

fn scaled(float: f64, scale: f64) -> Option<i64> {
    let integer = (float * scale).round();
    let returns = integer.abs() < EXACT && (integer as i64 as f64 / scale).to_bits() == float.to_bits();
    returns.then_some(integer as i64)
}
