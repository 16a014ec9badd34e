//! A column of integers: the first one, then the steps from one to the next, packed into as many bits as the widest
//! step takes, or written one by one where a few wide steps would widen all.

use super::{
    CodecError,
    bytes::{Reader, Writer, unzigzag, varint_len, zigzag},
};

const PACKED: u8 = 0;
const SINGLE: u8 = 1;

pub(crate) fn write(out: &mut Writer, numbers: &[i64]) {
    let Some(first) = numbers.first() else { return };
    let steps: Vec<i64> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    let least = steps.iter().copied().min().unwrap_or(0);
    let width = steps.iter().map(|step| bits(step.wrapping_sub(least) as u64)).max().unwrap_or(0);
    let packed = 1 + varint_len(zigzag(least)) + (steps.len() * width as usize).div_ceil(8);
    let single: usize = steps.iter().map(|step| varint_len(zigzag(*step))).sum();
    out.varint(zigzag(*first));
    if packed <= single {
        out.byte(PACKED);
        out.varint(zigzag(least));
        out.byte(width);
        pack(out, steps.iter().map(|step| step.wrapping_sub(least) as u64), width);
    } else {
        out.byte(SINGLE);
        steps.iter().for_each(|step| out.varint(zigzag(*step)));
    }
}

pub(crate) fn read(input: &mut Reader<'_>, count: usize) -> Result<Vec<i64>, CodecError> {
    let mut numbers = Vec::with_capacity(count);
    if count == 0 {
        return Ok(numbers);
    }
    let mut last = unzigzag(input.varint()?);
    numbers.push(last);
    match input.byte()? {
        PACKED => {
            let (least, width) = (unzigzag(input.varint()?), input.byte()?);
            unpack(input, count - 1, width, |offset| {
                last = last.wrapping_add(least).wrapping_add(offset as i64);
                numbers.push(last);
            })?;
        }
        SINGLE => {
            for _ in 1..count {
                last = last.wrapping_add(unzigzag(input.varint()?));
                numbers.push(last);
            }
        }
        _ => return Err(CodecError::Malformed),
    }
    Ok(numbers)
}

fn bits(number: u64) -> u8 {
    (64 - number.leading_zeros()) as u8
}

fn pack(out: &mut Writer, numbers: impl Iterator<Item = u64>, width: u8) {
    let (mut waiting, mut held) = (0_u128, 0_u32);
    for number in numbers {
        waiting |= u128::from(number) << held;
        held += u32::from(width);
        while held >= 8 {
            out.byte(waiting as u8);
            waiting >>= 8;
            held -= 8;
        }
    }
    if held > 0 {
        out.byte(waiting as u8);
    }
}

fn unpack(
    input: &mut Reader<'_>,
    count: usize,
    width: u8,
    mut take: impl FnMut(u64),
) -> Result<(), CodecError> {
    if width > 64 {
        return Err(CodecError::Malformed);
    }
    let packed = input.bytes((count * usize::from(width)).div_ceil(8))?;
    let mask = if width == 64 { u64::MAX } else { (1 << width) - 1 };
    let (mut waiting, mut held, mut next) = (0_u128, 0_u32, packed.iter());
    for _ in 0..count {
        while held < u32::from(width) {
            let byte = next.next().ok_or(CodecError::Truncated)?;
            waiting |= u128::from(*byte) << held;
            held += 8;
        }
        take(waiting as u64 & mask);
        waiting >>= width;
        held -= u32::from(width);
    }
    Ok(())
}
