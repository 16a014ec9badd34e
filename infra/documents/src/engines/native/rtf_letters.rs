//! Bytes of rich text as letters: each font has a character set, and letters of some sets have several bytes.

use std::collections::HashMap;

use encoding_rs::Encoding;

/// Bytes of one letter at most.
const LETTER: usize = 4;

/// The encodings of the fonts of a text, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Fonts(HashMap<i32, &'static Encoding>);

impl Fonts {
    /// Those of the font table, each of which is a group, or part of one group: `\f0\froman\fcharset204 Times;`.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let table = text.split_once("{\\fonttbl").map_or("", |(_, table)| table);
        let mut depth = 1_usize;
        let end = table.find(|letter| {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        let table = end.map_or(table, |end| &table[..end]);
        let number_of = |font: &str, word: &str| -> Option<i32> {
            let rest = font.split_once(word)?.1;
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
        };
        let fonts = table.split(';').filter_map(|font| {
            let number = font.split("\\f").skip(1).find_map(|rest| {
                rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok()
            })?;
            Some((number, of_charset(number_of(font, "\\fcharset")?)?))
        });
        Self(fonts.collect())
    }

    /// The encoding of font `number`, if it has another one than the text.
    pub(super) fn encoding(&self, number: i32) -> Option<&'static Encoding> {
        self.0.get(&number).copied()
    }
}

/// Bytes of a letter that are not all there.
#[derive(Debug, Default)]
pub(super) struct Letters(Vec<u8>);

impl Letters {
    /// Forgets a letter that is not all there; false if there is none.
    pub(super) fn clear(&mut self) -> bool {
        let is_begun = !self.0.is_empty();
        self.0.clear();
        is_begun
    }

    /// The letters that end with `byte`.
    pub(super) fn take(&mut self, byte: u8, encoding: &'static Encoding) -> Option<String> {
        self.0.push(byte);
        let (letters, had_errors) = encoding.decode_without_bom_handling(&self.0);
        if had_errors && self.0.len() < LETTER && is_begun(&self.0, encoding) {
            return None;
        }
        let letters = letters.into_owned();
        self.0.clear();
        Some(letters)
    }
}

/// Whether `bytes` are the first ones of a letter.
fn is_begun(bytes: &[u8], encoding: &'static Encoding) -> bool {
    if encoding.is_single_byte() {
        return false;
    }
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut letters = String::with_capacity(LETTER * LETTER);
    let (result, ..) = decoder.decode_to_string_without_replacement(bytes, &mut letters, false);
    matches!(result, encoding_rs::DecoderResult::InputEmpty)
}

/// The encoding of a code page of Windows, `\ansicpg`.
pub(super) fn of_page(page: i32) -> &'static Encoding {
    let label = match page {
        874 => "windows-874".to_owned(),
        932 => "shift_jis".to_owned(),
        936 => "gbk".to_owned(),
        949 => "euc-kr".to_owned(),
        950 => "big5".to_owned(),
        10_000 => "macintosh".to_owned(),
        65_001 => "utf-8".to_owned(),
        other => format!("windows-{other}"),
    };
    Encoding::for_label(label.as_bytes()).unwrap_or(encoding_rs::WINDOWS_1252)
}

/// The encoding of a character set of a font, as the specification lists them; none of the default, and of signs.
fn of_charset(charset: i32) -> Option<&'static Encoding> {
    let page = match charset {
        0 => 1252,
        77 => 10_000,
        128 => 932,
        129 => 949,
        134 => 936,
        136 => 950,
        161 => 1253,
        162 => 1254,
        163 => 1258,
        177 => 1255,
        178 => 1256,
        186 => 1257,
        204 => 1251,
        222 => 874,
        238 => 1250,
        _ => return None,
    };
    Some(of_page(page))
}

#[cfg(test)]
mod tests {
    use super::super::rtf::read;
    use crate::block::Block;

    #[test]
    fn letters_are_those_of_the_fonts_sets() {
        let rtf = br"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0\froman\fcharset0 Times;}{\f1\fswiss\fcharset204{\*\panose 020b}Arial Cyr;}
            {\f2\fnil\fcharset128 MS Gothic;}}{\stylesheet;}\f0 Gr\'fc\'dfe {\f1 \'cf\'f0\'e8\'e2\'e5\'f2} \'e9 {\f2\'82\'a0\'95\'5c\'b1A}\par}";
        let blocks = read(rtf).unwrap().blocks;
        assert_eq!(blocks[0].text(), "Grüße Привет é あ表ｱA");
        let rtf = br"{\rtf1\ansi\ansicpg936\deff0{\fonttbl\f0\fnil Song;}\'c4\'e3\'ba\'c3, \'c4\par}";
        assert_eq!(read(rtf).unwrap().blocks[0].text(), "你好, \u{FFFD}");
        let rtf = br"{\rtf1\ansi\deff1{\fonttbl{\f0\fcharset0 Times;}
            {\f1\fcharset204 Arial;}
            }\'cf\'f0\'e8 {\u8364}\'e2\'e5\'f2\par}";
        assert_eq!(read(rtf).unwrap().blocks[0].text(), "При €вет");
        let rtf =
            br"{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset204 A;}{\f1 B;}}\f1\'e9\par\plain\'e9\par}";
        let texts: Vec<String> = read(rtf).unwrap().blocks.iter().map(Block::text).collect();
        assert_eq!(texts, ["é", "й"]);
        let rtf = br"{\rtf1\ansi\ansicpg936 \'c4\par Next \u8364\par End\par}";
        let texts: Vec<String> = read(rtf).unwrap().blocks.iter().map(Block::text).collect();
        assert_eq!(texts, ["\u{FFFD}", "Next €", "End"]);
    }
}
