//! Fax codings of black and white rows, ITU-T T.4 and T.6, as TIFF has them: compressions 2, 3 and 4.

use fax::{
    BitReader,
    maps::{Mode, black, mode, white},
};

/// How a strip is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// Rows of run lengths that begin at whole bytes: Modified Huffman.
    Runs,
    /// The same, at whole pairs of bytes.
    RunsInWords,
    /// Group 3: an end-of-line mark precedes each row. A bit after it may say that the row is coded relative to the one
    /// before.
    Group3 { may_refer: bool },
    /// Group 4: every row is coded relative to the one before.
    Group4,
}

/// Zeros before the one that ends a mark of Group 3.
const MARK: usize = 11;
/// So many marks in a row end a strip.
const LAST_MARKS: usize = 3;

/// Decodes rows of `width` pixels from `strip`: bits from the highest of each byte on. `paint` gets, of each row, where the
/// colour changes, beginning with white; gives back how many rows there were, at most `rows`.
pub(super) fn decode(
    strip: &[u8],
    coding: Coding,
    width: u32,
    rows: u32,
    mut paint: impl FnMut(u32, &[u32]),
) -> u32 {
    let mut bits = Bits { bytes: strip, at: 0 };
    let (mut before, mut row) = (Vec::new(), Vec::new());
    for number in 0..rows {
        row.clear();
        let Some(refers) = bits.begin_row(coding) else { return number };
        let is_whole = if refers {
            bits.referring_row(&before, width, &mut row).is_some()
        } else {
            bits.row_of_runs(width, &mut row).is_some()
        };
        // After a damaged row, decoding resumes at the next mark. Codings without marks stop here.
        if !is_whole && (!matches!(coding, Coding::Group3 { .. }) || !bits.find_mark()) {
            return number;
        }
        if !is_whole && row.len() % 2 == 1 {
            // The rest is white.
            row.extend(row.last().copied());
        }
        paint(number, &row);
        std::mem::swap(&mut before, &mut row);
    }
    rows
}

#[derive(Clone)]
struct Bits<'a> {
    bytes: &'a [u8],
    /// The next bit.
    at: usize,
}

impl BitReader for Bits<'_> {
    type Error = std::convert::Infallible;

    /// Behind the end there are zeros, as long as something is before it.
    fn peek(&self, bits: u8) -> Option<u16> {
        if bits > 16 || self.is_at_end() {
            return None;
        }
        let first = self.at / 8;
        let byte = |index: usize| u32::from(self.bytes.get(first + index).copied().unwrap_or(0));
        let all = byte(0) << 16 | byte(1) << 8 | byte(2);
        Some((all << (8 + self.at % 8) >> (32 - u32::from(bits.max(1)))) as u16 & mask(bits))
    }

    fn consume(&mut self, bits: u8) -> Result<(), Self::Error> {
        self.at += usize::from(bits);
        Ok(())
    }

    fn bits_to_byte_boundary(&self) -> u8 {
        (8 - self.at % 8) as u8 % 8
    }
}

fn mask(bits: u8) -> u16 {
    if bits >= 16 { u16::MAX } else { (1 << bits) - 1 }
}

impl Bits<'_> {
    fn is_at_end(&self) -> bool {
        self.at >= 8 * self.bytes.len()
    }

    /// Moves to the codes of the next row. True if it refers to the row before, `None` at the end of the strip.
    fn begin_row(&mut self, coding: Coding) -> Option<bool> {
        match coding {
            Coding::Runs => self.at = self.at.next_multiple_of(8),
            Coding::RunsInWords => self.at = self.at.next_multiple_of(16),
            Coding::Group4 => {}
            Coding::Group3 { may_refer } => {
                let (mut marks, mut refers) = (0, false);
                while self.take_mark() {
                    marks += 1;
                    if may_refer {
                        refers = self.peek(1)? == 0;
                        self.at += 1;
                    }
                }
                return (marks < LAST_MARKS && !self.is_at_end()).then_some(refers);
            }
        }
        (!self.is_at_end()).then_some(coding == Coding::Group4)
    }

    /// Takes a mark and the fill zeros before it; false if no mark is next.
    fn take_mark(&mut self) -> bool {
        if self.peek(MARK as u8) != Some(0) {
            return false;
        }
        let mut ahead = self.clone();
        while ahead.peek(1) == Some(0) {
            ahead.at += 1;
        }
        let is_mark = !ahead.is_at_end();
        if is_mark {
            self.at = ahead.at + 1;
        }
        is_mark
    }

    /// Moves to the next mark; false at the end of the strip.
    fn find_mark(&mut self) -> bool {
        while !self.is_at_end() {
            if self.clone().take_mark() {
                return true;
            }
            self.at += 1;
        }
        false
    }

    fn run(&mut self, is_black: bool) -> Option<u32> {
        let mut length = 0_u32;
        loop {
            let code = if is_black { black::decode(self) } else { white::decode(self) }?;
            length = length.checked_add(u32::from(code))?;
            if code < 64 {
                return Some(length);
            }
        }
    }

    fn row_of_runs(&mut self, width: u32, row: &mut Vec<u32>) -> Option<()> {
        let (mut at, mut is_black) = (0, false);
        while at < width {
            // No code has so many leading zeros: the row is short.
            if self.peek(MARK as u8) == Some(0) {
                return None;
            }
            at = (at + self.run(is_black)?).min(width);
            row.push(at);
            is_black = !is_black;
        }
        Some(())
    }

    /// Decodes a row whose changes are coded relative to those of the row `before`.
    fn referring_row(&mut self, before: &[u32], width: u32, row: &mut Vec<u32>) -> Option<()> {
        let (mut at, mut is_begun, mut is_black) = (0_u32, false, false);
        while at < width {
            // The first change of the other colour to the right, and the one behind it.
            let mut next = before.partition_point(|change| if is_begun { *change <= at } else { false });
            next += usize::from((next % 2 == 1) != is_black);
            let change = |index: usize| before.get(index).copied().unwrap_or(width);
            match mode::decode(self)? {
                Mode::Pass => at = change(next + 1),
                Mode::Vertical(shift) => {
                    let to = change(next).checked_add_signed(i32::from(shift))?;
                    if to < at || to > width {
                        return None;
                    }
                    row.push(to);
                    (at, is_black) = (to, !is_black);
                }
                Mode::Horizontal => {
                    for colour in [is_black, !is_black] {
                        at = (at + self.run(colour)?).min(width);
                        row.push(at);
                    }
                }
                Mode::Extension | Mode::EOF => return None,
            }
            is_begun = true;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows as zeros and ones.
    fn rows(strip: &[u8], coding: Coding, width: u32, rows: u32) -> Vec<String> {
        let mut found = Vec::new();
        decode(strip, coding, width, rows, |_, changes| {
            let is_black = |x: u32| changes.iter().filter(|change| **change <= x).count() % 2 == 1;
            found.push((0..width).map(|x| if is_black(x) { '1' } else { '0' }).collect::<String>());
        });
        found
    }

    /// Bytes from bits in words.
    fn packed(bits: &str) -> Vec<u8> {
        let bits: Vec<u8> = bits.bytes().filter(|bit| *bit != b' ').map(|bit| bit - b'0').collect();
        bits.chunks(8)
            .map(|byte| byte.iter().enumerate().fold(0, |all, (at, bit)| all | bit << (7 - at)))
            .collect()
    }

    const MARK: &str = "000000000001";

    #[test]
    fn runs_begin_at_whole_bytes() {
        // Two white, three black, three white; then eight white.
        let strip = packed("0111 10 1000 000000 10011");
        assert_eq!(rows(&strip, Coding::Runs, 8, 2), ["00111000", "00000000"]);
        let words = packed("0111 10 1000 000000 10011");
        assert_eq!(rows(&words, Coding::RunsInWords, 8, 2), ["00111000", "00000000"]);
    }

    #[test]
    fn marks_part_rows_and_end_a_strip() {
        let strip =
            packed(&format!("{MARK} 0111 10 1000 0000{MARK} 10011 {MARK}{MARK}{MARK}{MARK}{MARK}{MARK}"));
        assert_eq!(rows(&strip, Coding::Group3 { may_refer: false }, 8, 9), ["00111000", "00000000"]);
        // The second row is like the first, but for one pixel more at the right.
        let strip =
            packed(&format!("{MARK}1 0111 10 1000 {MARK}0 1 011 1 {MARK}1 10011 {MARK}1{MARK}1{MARK}1"));
        let expected = ["00111000", "00111100", "00000000"];
        assert_eq!(rows(&strip, Coding::Group3 { may_refer: true }, 8, 9), expected);
    }

    #[test]
    fn damaged_row_ends_at_the_next_mark() {
        let strip = packed(&format!("{MARK} 0111 10 1000 {MARK} 0111 {MARK} 10011 {MARK}{MARK}{MARK}"));
        let expected = ["00111000", "00000000", "00000000"];
        assert_eq!(rows(&strip, Coding::Group3 { may_refer: false }, 8, 9), expected);
    }

    #[test]
    fn rows_refer_to_the_row_before() {
        // Horizontal two white, three black; then the same again; then nothing but white.
        let strip = packed("001 0111 10 1 1 1 1 0001 1");
        assert_eq!(rows(&strip, Coding::Group4, 8, 3), ["00111000", "00111000", "00000000"]);
    }

    #[test]
    fn noise_ends() {
        let noise: Vec<u8> = (0..4096_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for coding in [Coding::Runs, Coding::RunsInWords, Coding::Group3 { may_refer: true }, Coding::Group4]
        {
            for start in 0..64 {
                assert!(rows(&noise[start..], coding, 1728, 64).len() <= 64);
            }
        }
    }
}
