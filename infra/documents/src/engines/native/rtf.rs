//! Rich text after Microsoft's specification 1.9.1: paragraphs, headings by outline level, tables, bullets.

use std::collections::HashMap;

use encoding_rs::{Encoding, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1253, WINDOWS_1254};

use super::{
    Content,
    collect::Collector,
    docx_table::{DocxTable, Merge},
};
use crate::{failure::Failure, table::Table};

/// Groups within groups at most.
const DEPTH: usize = 1000;
/// How far the edges of one column may miss each other from row to row, in twentieths of a point.
const NEAR: i32 = 60;
/// Groups that hold no text of the document.
const HIDDEN: [&str; 16] = [
    "fonttbl",
    "colortbl",
    "stylesheet",
    "info",
    "pict",
    "object",
    "header",
    "footer",
    "headerf",
    "footerf",
    "themedata",
    "listtable",
    "listoverridetable",
    "fldinst",
    "xmlnstbl",
    "generator",
];

/// Reads a text.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let mut reader = Reader { headings: headings(bytes), ..Reader::default() };
    reader.run(bytes)?;
    reader.end_paragraph();
    reader.end_table();
    Ok(Content { blocks: reader.collector.finish(), ..Content::default() })
}

/// State of a group.
#[derive(Clone, Copy)]
struct State {
    hidden: bool,
    /// Letters of an older program's version that follow a Unicode letter.
    skip: usize,
}

/// A row of a table: its texts, and the places of its cells if they are described.
struct Row {
    texts: Vec<String>,
    places: Vec<Place>,
    is_head: bool,
}

/// Where a cell is.
#[derive(Clone, Copy, Default)]
struct Place {
    right: i32,
    /// Whether it is part of the cell before.
    is_merged: bool,
    /// Whether it is one with cells above or below.
    rows: Option<Merge>,
}

/// The paragraph that a text box interrupts.
struct Interrupted {
    /// How many groups are open around the box.
    depth: usize,
    text: String,
    outline: Option<u8>,
    is_item: bool,
    in_table: bool,
}

struct Reader {
    /// Levels of the styles of headings, by their numbers.
    headings: HashMap<i32, u8>,
    collector: Collector,
    text: String,
    state: State,
    stack: Vec<State>,
    /// Paragraphs around the text boxes that are read.
    interrupted: Vec<Interrupted>,
    encoding: &'static Encoding,
    /// Letters that are left out, because they repeat a Unicode one.
    skipping: usize,
    outline: Option<u8>,
    is_item: bool,
    in_table: bool,
    rows: Vec<Row>,
    row: Vec<String>,
    /// The cells of the row that is read, as they are described before their texts.
    places: Vec<Place>,
    /// The cell that is described.
    place: Place,
    is_head: bool,
    high: Option<u16>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            headings: HashMap::new(),
            collector: Collector::default(),
            text: String::new(),
            state: State { hidden: false, skip: 1 },
            stack: Vec::new(),
            interrupted: Vec::new(),
            encoding: WINDOWS_1252,
            skipping: 0,
            outline: None,
            is_item: false,
            in_table: false,
            rows: Vec::new(),
            row: Vec::new(),
            places: Vec::new(),
            place: Place::default(),
            is_head: false,
            high: None,
        }
    }
}

impl Reader {
    fn run(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut at = 0;
        while at < bytes.len() {
            match bytes[at] {
                b'{' => {
                    if self.stack.len() >= DEPTH {
                        return Err(Failure::too_much("the text is nested more deeply than is read"));
                    }
                    self.stack.push(self.state);
                    at += 1;
                }
                b'}' => {
                    self.end_box();
                    self.state = self.stack.pop().unwrap_or(self.state);
                    at += 1;
                }
                b'\\' => at = self.control(bytes, at + 1),
                b'\r' | b'\n' => at += 1,
                byte => {
                    self.byte(byte);
                    at += 1;
                }
            }
        }
        if self.stack.is_empty() { Ok(()) } else { Err(Failure::corrupt("the text is truncated")) }
    }

    /// Takes the control word or symbol at `at`; returns where it ends.
    fn control(&mut self, bytes: &[u8], at: usize) -> usize {
        let Some(&first) = bytes.get(at) else { return at };
        if !first.is_ascii_alphabetic() {
            match first {
                b'\'' => {
                    let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
                    if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                        self.byte(byte);
                    }
                    return at + 3;
                }
                b'*' => self.state.hidden = true,
                b'~' => self.push('\u{A0}'),
                b'_' => self.push('-'),
                b'\\' | b'{' | b'}' => self.byte(first),
                b'\n' | b'\r' => self.end_paragraph(),
                _ => {}
            }
            return at + 1;
        }
        let end = |from: usize, is: fn(&u8) -> bool| {
            from + bytes[from..].iter().take_while(|byte| is(byte)).count()
        };
        let word_end = end(at, u8::is_ascii_alphabetic);
        let sign = usize::from(bytes.get(word_end) == Some(&b'-'));
        let number_end = end(word_end + sign, u8::is_ascii_digit);
        let word = std::str::from_utf8(&bytes[at..word_end]).unwrap_or_default();
        let number =
            std::str::from_utf8(&bytes[word_end..number_end]).ok().and_then(|number| number.parse().ok());
        self.word(word, number);
        let after = if number_end == word_end + sign { word_end } else { number_end };
        let mut next = after + usize::from(bytes.get(after) == Some(&b' '));
        if word == "bin" {
            next += number.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        }
        next
    }

    fn word(&mut self, word: &str, number: Option<i32>) {
        match word {
            _ if HIDDEN.contains(&word) => self.state.hidden = true,
            // The paragraph around continues behind hidden groups.
            "par" | "sect" | "page" | "pard" | "intbl" | "cell" | "row" if self.state.hidden => {}
            "ansicpg" => self.encoding = encoding(number.unwrap_or(1252)),
            "uc" => self.state.skip = usize::try_from(number.unwrap_or(1)).unwrap_or(1),
            "u" => self.unicode(number.unwrap_or(0)),
            "par" | "sect" | "page" => self.end_paragraph(),
            "pard" => {
                self.outline = None;
                self.is_item = false;
                self.in_table = false;
            }
            "s" if !self.state.hidden => {
                self.outline = number.and_then(|style| self.headings.get(&style)).copied()
            }
            "intbl" => self.in_table = true,
            "cell" => {
                let text = std::mem::take(&mut self.text);
                self.row.push(text);
            }
            "row" => {
                let (texts, places) = (std::mem::take(&mut self.row), self.places.clone());
                self.rows.push(Row { texts, places, is_head: self.is_head });
            }
            "trowd" => {
                self.places.clear();
                (self.place, self.is_head) = (Place::default(), false);
            }
            "trhdr" => self.is_head = true,
            "clmrg" => self.place.is_merged = true,
            "clvmgf" => self.place.rows = Some(Merge::Starts),
            "clvmrg" => self.place.rows = Some(Merge::Continues),
            "cellx" => {
                let place = Place { right: number.unwrap_or(0), ..std::mem::take(&mut self.place) };
                self.places.push(place);
            }
            "outlinelevel" => {
                self.outline = number.and_then(|level| u8::try_from(level).ok()).filter(|level| *level < 9)
            }
            "shptxt" => self.begin_box(),
            "ls" => self.is_item = true,
            "listtext" | "pntext" => {
                self.is_item = true;
                self.state.hidden = true;
            }
            "tab" => self.push('\t'),
            "line" => self.push('\n'),
            "emdash" => self.push('—'),
            "endash" => self.push('–'),
            "bullet" => self.push('•'),
            "lquote" => self.push('‘'),
            "rquote" => self.push('’'),
            "ldblquote" => self.push('“'),
            "rdblquote" => self.push('”'),
            _ => {}
        }
    }

    fn unicode(&mut self, number: i32) {
        let unit = (number & 0xFFFF) as u16;
        match (unit, self.high.take()) {
            (0xD800..=0xDBFF, _) => self.high = Some(unit),
            (0xDC00..=0xDFFF, Some(high)) => {
                let letters = char::decode_utf16([high, unit]).flatten();
                letters.for_each(|letter| self.push(letter));
            }
            _ => char::from_u32(u32::from(unit)).into_iter().for_each(|letter| self.push(letter)),
        }
        self.skipping = self.state.skip;
    }

    fn byte(&mut self, byte: u8) {
        if self.skipping > 0 {
            self.skipping -= 1;
            return;
        }
        let (letters, ..) = self.encoding.decode(std::slice::from_ref(&byte));
        if !self.state.hidden {
            self.text.push_str(&letters);
        }
    }

    fn push(&mut self, letter: char) {
        if !self.state.hidden {
            self.text.push(letter);
        }
    }

    fn end_paragraph(&mut self) {
        if self.in_table {
            self.push('\n');
            return;
        }
        // A text box does not end the table in a cell of which it stands.
        if self.interrupted.is_empty() {
            self.end_table();
        }
        let text = std::mem::take(&mut self.text);
        match self.outline {
            Some(level) => self.collector.heading(level + 1, &text),
            None if self.is_item => self.collector.item(0, false, &text),
            None => self.collector.paragraph(&text),
        }
    }

    /// The text of a shape is a paragraph before the one in which the shape stands.
    fn begin_box(&mut self) {
        self.interrupted.push(Interrupted {
            depth: self.stack.len(),
            text: std::mem::take(&mut self.text),
            outline: self.outline.take(),
            is_item: std::mem::take(&mut self.is_item),
            in_table: std::mem::take(&mut self.in_table),
        });
        self.state.hidden = false;
    }

    /// At the end of a group, which may be that of a text box.
    fn end_box(&mut self) {
        if self.interrupted.last().is_none_or(|around| around.depth != self.stack.len()) {
            return;
        }
        let box_text = std::mem::take(&mut self.text);
        let Some(Interrupted { text, outline, is_item, in_table, .. }) = self.interrupted.pop() else {
            return;
        };
        self.collector.paragraph(&box_text);
        (self.text, self.outline, self.is_item, self.in_table) = (text, outline, is_item, in_table);
    }

    fn end_table(&mut self) {
        if !self.rows.is_empty() {
            self.collector.table(table(std::mem::take(&mut self.rows)));
        }
    }
}

/// The rows as a table, whose columns end where a cell ends in any of them.
fn table(rows: Vec<Row>) -> Table {
    if rows.iter().any(|row| row.places.len() != row.texts.len()) {
        return Table::new(rows.into_iter().map(|row| row.texts).collect());
    }
    let mut edges: Vec<i32> = rows.iter().flat_map(|row| &row.places).map(|place| place.right).collect();
    edges.sort_unstable();
    edges.dedup_by(|next, edge| *next - *edge <= NEAR);
    let mut table = DocxTable::default();
    for Row { texts, places, is_head } in rows {
        table.begin_row();
        if is_head {
            table.make_row_head();
        }
        let mut begun = 0;
        for (index, (text, place)) in texts.into_iter().zip(&places).enumerate() {
            if place.is_merged && index > 0 {
                continue;
            }
            let merged = places[index + 1..].iter().take_while(|next| next.is_merged).last();
            let right = merged.map_or(place.right, |last| last.right);
            let end = edges.partition_point(|edge| *edge <= right).max(begun + 1);
            table.begin_cell();
            table.span_columns(end - begun);
            place.rows.into_iter().for_each(|rows| table.merge_rows(rows));
            table.text().into_iter().for_each(|cell| cell.clone_from(&text));
            begun = end;
        }
    }
    table.finish()
}

/// The styles called `heading 1` and so on, from 0: each is a group of the style sheet that ends with its name.
fn headings(bytes: &[u8]) -> HashMap<i32, u8> {
    let text = String::from_utf8_lossy(bytes);
    let sheet = text.split_once("{\\stylesheet").map_or("", |(_, sheet)| sheet);
    let mut found = HashMap::new();
    for style in sheet.split('{').skip(1).take_while(|style| style.contains(";}")) {
        let number = style
            .strip_prefix("\\s")
            .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
        let name = style.split(";}").next().and_then(|style| style.rsplit_once('\\')?.1.split_once(' '));
        let level = name.and_then(|(_, name)| match name.to_lowercase().as_str() {
            "title" => Some(0),
            other => other.strip_prefix("heading ")?.parse::<u8>().ok()?.checked_sub(1),
        });
        if let (Some(Ok(number)), Some(level)) = (number.map(|number| number.parse()), level) {
            found.insert(number, level);
        }
    }
    found
}

fn encoding(page: i32) -> &'static Encoding {
    match page {
        1250 => WINDOWS_1250,
        1251 => WINDOWS_1251,
        1253 => WINDOWS_1253,
        1254 => WINDOWS_1254,
        65001 => encoding_rs::UTF_8,
        _ => WINDOWS_1252,
    }
}

#[cfg(test)]
mod tests {
    use crate::{block::Content as Kind, table::Table};

    #[test]
    fn letters_paragraphs_and_tables_are_read() {
        let rtf = br"{\rtf1\ansi\ansicpg1252{\fonttbl{\f0 Arial;}}{\*\generator x;}\pard\outlinelevel0 Titel\par
            \pard Gr\'fc\'dfe \u8364?5 \{ok\}\par\pard\intbl a\cell b\cell\row\intbl 1\cell 2\cell\row\pard Ende\par}";
        let blocks = super::read(rtf).unwrap().blocks;
        let contents: Vec<_> = blocks.into_iter().map(|block| block.content).collect();
        let row = |one: &str, other: &str| vec![one.to_owned(), other.to_owned()];
        assert_eq!(
            contents,
            [
                Kind::Heading { level: 1, text: "Titel".to_owned() },
                Kind::Paragraph("Grüße €5 {ok}".to_owned()),
                Kind::Table(Table::new(vec![row("a", "b"), row("1", "2")])),
                Kind::Paragraph("Ende".to_owned()),
            ]
        );
    }

    #[test]
    fn text_boxes_are_read_once() {
        let rtf = br"{\rtf1 First {\shp{\*\shpinst\shpleft1{\sp{\sn shapeType}{\sv 202}}{\shptxt \pard Closing force\par 4.5 kN\par}}{\shprslt{\*\do\dpx1
            {\dptxbxtext\pard Closing force\par}}}}line\par Last\par}";
        let blocks = super::read(rtf).unwrap().blocks;
        let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
        assert_eq!(texts, ["Closing force", "4.5 kN", "First line", "Last"]);
    }

    #[test]
    fn a_text_box_in_a_cell_does_not_end_the_table() {
        let rtf = br"{\rtf1\pard\intbl a\cell b\cell\row\intbl 1{\shp{\*\shpinst{\shptxt \pard Note\par}}}\cell 2\cell\row\pard End\par}";
        let blocks = super::read(rtf).unwrap().blocks;
        let row = |one: &str, other: &str| vec![one.to_owned(), other.to_owned()];
        let contents: Vec<_> = blocks.into_iter().map(|block| block.content).collect();
        assert_eq!(
            contents,
            [
                Kind::Paragraph("Note".to_owned()),
                Kind::Table(Table::new(vec![row("a", "b"), row("1", "2")])),
                Kind::Paragraph("End".to_owned()),
            ]
        );
    }

    #[test]
    fn merged_cells_of_tables_are_kept() {
        let rtf = br"{\rtf1\ansi\trowd\trhdr\clvmgf\cellx1000\clmgf\cellx2000\clmrg\cellx3000\pard\intbl Part\cell Size\cell\cell\row
            \trowd\clvmrg\cellx1010\cellx2000\cellx3000\pard\intbl\cell mm\cell inch\cell\row
            \trowd\cellx2000\cellx3000\pard\intbl Rod\cell 1\cell\row\pard}";
        let blocks = super::read(rtf).unwrap().blocks;
        let Kind::Table(table) = &blocks[0].content else { panic!("{blocks:?}") };
        assert_eq!(table.rows, [["Part", "Size", ""], ["", "mm", "inch"], ["Rod", "", "1"]]);
        let merged = table.cells.iter().filter(|cell| cell.row_span * cell.col_span > 1);
        let merged: Vec<_> =
            merged.map(|cell| (cell.row, cell.column, cell.row_span, cell.col_span)).collect();
        assert_eq!(merged, [(0, 0, 2, 1), (0, 1, 1, 2), (2, 0, 1, 2)]);
    }
}
