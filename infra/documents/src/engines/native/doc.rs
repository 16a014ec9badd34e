//! Word 97 to 2003, [MS-DOC]: the text by its piece table, with paragraphs and tables; fields show their result.

use encoding_rs::WINDOWS_1252;

use super::{
    Content,
    collect::Collector,
    compound::{Compound, u16_at, u32_at},
};
use crate::{detect, failure::Failure, table::Table};

/// First bytes of a document of Word 97 and later, and the flags of its header.
const MAGIC: u16 = 0xA5EC;
const ENCRYPTED: u16 = 0x0100;
const SECOND_TABLE: u16 = 0x0200;
/// First version that has a piece table of this kind.
const WORD_97: u16 = 0x00C1;
/// Where the head holds the lengths of the text's parts, and place and length of the piece table.
const LENGTHS: usize = 0x4C;
const PIECES: usize = 0x01A2;
/// The part of a piece table that is one.
const PIECE_TABLE: u8 = 2;
/// Letters of a document at most.
const LETTERS: usize = 64 << 20;
/// Columns of a table at most.
const MAX_COLUMNS: usize = 63;
/// Signs in the text.
const CELL: char = '\u{7}';
const FIELD: char = '\u{13}';
const FIELD_RESULT: char = '\u{14}';
const FIELD_END: char = '\u{15}';

/// Reads the text, and behind it notes, headers, comments and text boxes, in the order of the file.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let file = Compound::open(bytes)?;
    let damaged = || Failure::corrupt("the document is damaged: its text is missing");
    let main = file.stream("WordDocument")?.ok_or_else(damaged)?;
    let (magic, version) = (u16_at(&main, 0).ok_or_else(damaged)?, u16_at(&main, 2).ok_or_else(damaged)?);
    if magic != MAGIC || version < WORD_97 {
        // Of older versions, which other engines may read.
        return Err(Failure::Unsupported { mime_type: detect::DOC.to_owned() });
    }
    let flags = u16_at(&main, 10).ok_or_else(damaged)?;
    if flags & ENCRYPTED != 0 {
        return Err(Failure::Encrypted);
    }
    let table = if flags & SECOND_TABLE != 0 { "1Table" } else { "0Table" };
    let table = file.stream(table)?.ok_or_else(damaged)?;
    let letters = text(&main, &table).ok_or_else(damaged)?;
    let parts: Vec<usize> =
        (0..8).map(|part| u32_at(&main, LENGTHS + 4 * part).map_or(0, |length| length as usize)).collect();
    let mut reader = Reader::default();
    let mut at = 0;
    for length in parts {
        let part = &letters[at.min(letters.len())..(at.saturating_add(length)).min(letters.len())];
        part.iter().for_each(|letter| reader.take(*letter));
        reader.end();
        at = at.saturating_add(length);
    }
    Ok(Content { blocks: reader.collector.finish(), ..Content::default() })
}

/// The letters of all pieces, in order.
fn text(main: &[u8], table: &[u8]) -> Option<Vec<char>> {
    let (at, length) = (u32_at(main, PIECES)? as usize, u32_at(main, PIECES + 4)? as usize);
    let mut rest = table.get(at..at.checked_add(length)?)?;
    // Before the table there are properties, each with its length.
    while *rest.first()? != PIECE_TABLE {
        let skipped = usize::from(u16_at(rest, 1)?);
        rest = rest.get(3 + skipped..)?;
    }
    let size = u32_at(rest, 1)? as usize;
    let pieces = rest.get(5..5_usize.checked_add(size)?)?;
    let count = pieces.len().checked_sub(4)? / 12;
    let mut letters = Vec::new();
    for piece in 0..count {
        let (from, to) = (u32_at(pieces, 4 * piece)?, u32_at(pieces, 4 * piece + 4)?);
        let length = to.checked_sub(from)? as usize;
        if letters.len().checked_add(length)? > LETTERS {
            return None;
        }
        let place = u32_at(pieces, 4 * (count + 1) + 8 * piece + 2)?;
        // A piece has a byte for each letter, or two.
        if place & 0x4000_0000 != 0 {
            let start = (place & 0x3FFF_FFFF) as usize / 2;
            let bytes = main.get(start..start.checked_add(length)?)?;
            letters.extend(WINDOWS_1252.decode_without_bom_handling(bytes).0.chars());
        } else {
            let bytes = main.get(place as usize..(place as usize).checked_add(length.checked_mul(2)?)?)?;
            let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
            // Lengths are in units: one letter of two units takes the place of two.
            for letter in char::decode_utf16(units) {
                let letter = letter.unwrap_or('\u{FFFD}');
                letters.push(letter);
                letters.extend(std::iter::repeat_n('\0', letter.len_utf16() - 1));
            }
        }
    }
    Some(letters)
}

#[derive(Default)]
struct Reader {
    collector: Collector,
    text: String,
    /// Of the open table: the text before each mark that ends a cell or a row.
    cells: Vec<String>,
    /// Of the open fields: whether their instruction is read, which no reader sees.
    fields: Vec<bool>,
}

impl Reader {
    fn take(&mut self, letter: char) {
        match letter {
            FIELD => self.fields.push(true),
            FIELD_RESULT => self.fields.iter_mut().last().into_iter().for_each(|hidden| *hidden = false),
            FIELD_END => {
                self.fields.pop();
            }
            _ if self.fields.contains(&true) => {}
            CELL => {
                let text = std::mem::take(&mut self.text);
                self.cells.push(text.trim().to_owned());
            }
            // Within a row, a cell has several paragraphs.
            '\r' if self.cells.last().is_some_and(|last| !last.is_empty()) => self.text.push('\n'),
            '\r' | '\u{C}' | '\u{E}' => self.end_paragraph(),
            '\u{B}' => self.text.push('\n'),
            '\u{1E}' => self.text.push('-'),
            '\u{1F}' => self.text.push('\u{AD}'),
            '\t' => self.text.push('\t'),
            _ if letter.is_control() => {}
            _ => self.text.push(letter),
        }
    }

    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        if !self.cells.is_empty() {
            self.collector.table(Table::new(rows(std::mem::take(&mut self.cells))));
        }
        self.collector.paragraph(&text);
    }

    fn end(&mut self) {
        self.end_paragraph();
        self.fields.clear();
    }
}

/// The rows of a table. The same mark ends a cell and a row, so a row ends with what looks like an empty cell; an empty
/// cell does, too, but not at the same place in every row. Rows of different widths are divided at every empty cell.
fn rows(cells: Vec<String>) -> Vec<Vec<String>> {
    let fits = |width: &usize| {
        let is_one_row = cells.len() == width + 1;
        let has_empty = cells[..*width].iter().any(String::is_empty);
        cells.len().is_multiple_of(width + 1)
            && !(is_one_row && has_empty)
            && cells.iter().skip(*width).step_by(width + 1).all(String::is_empty)
    };
    match (1..=MAX_COLUMNS.min(cells.len())).find(fits) {
        Some(width) => cells.chunks(width + 1).map(|row| row[..width].to_vec()).collect(),
        None => cells.split(String::is_empty).filter(|row| !row.is_empty()).map(<[String]>::to_vec).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_end_where_every_row_has_an_empty_cell() {
        let cells = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let table = rows(cells(&["a", "", "c", "", "1", "2", "", ""]));
        assert_eq!(table, [cells(&["a", "", "c"]), cells(&["1", "2", ""])]);
        assert_eq!(rows(cells(&["a", "", "1", "2", ""])), [cells(&["a"]), cells(&["1", "2"])]);
    }

    #[test]
    fn fields_show_their_result() {
        let mut reader = Reader::default();
        "See \u{13} HYPERLINK \"x\" \u{14}the page\u{15}.\rA\u{7}B\u{7}\u{7}After\r"
            .chars()
            .for_each(|letter| reader.take(letter));
        reader.end();
        let blocks = reader.collector.finish();
        let texts: Vec<String> = blocks.iter().map(crate::block::Block::text).collect();
        assert_eq!(texts, ["See the page.", "A\tB", "After"]);
    }

    #[test]
    fn damaged_files_are_refused() {
        let file = include_bytes!("../../../../../tests/documents/letter.doc");
        for length in [8, 512, 600, 2048, 4096, file.len() / 2] {
            assert!(read(&file[..length]).is_err(), "{length}");
        }
        for at in (0..file.len()).step_by(97) {
            let mut bytes = file.to_vec();
            bytes[at] ^= 0xFF;
            let _ = read(&bytes);
        }
    }
}
