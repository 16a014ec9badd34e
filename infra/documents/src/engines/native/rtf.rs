//! Rich text after Microsoft's specification 1.9.1: paragraphs, headings by outline level, tables, bullets.

use std::collections::{HashMap, HashSet};

use encoding_rs::{Encoding, WINDOWS_1252};

use super::{
    Content,
    collect::Collector,
    docx_table::Merge,
    notes,
    rtf_letters::{self, Fonts, Letters},
    rtf_table::{Place, Row, table},
};
use crate::{block::Block, failure::Failure};

/// Groups within groups at most.
const DEPTH: usize = 1000;
/// Groups that hold no text of the document.
const HIDDEN: [&str; 12] = [
    "fonttbl",
    "colortbl",
    "stylesheet",
    "info",
    "pict",
    "object",
    "themedata",
    "listtable",
    "listoverridetable",
    "fldinst",
    "xmlnstbl",
    "generator",
];

/// Reads a text with the headers of its pages before it and the footers behind it, each once.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let (headings, fonts) = (headings(bytes), Fonts::read(bytes));
    let mut reader = Reader { headings, fonts, ..Reader::default() };
    reader.run(bytes)?;
    reader.end_part();
    let mut blocks = without_repeated(reader.heads);
    blocks.extend(reader.body.collector.finish());
    blocks.extend(without_repeated(reader.feet));
    Ok(Content { blocks, ..Content::default() })
}

/// Numbers of pages alone are left out, too.
fn without_repeated(mut margins: Vec<Block>) -> Vec<Block> {
    let mut known = HashSet::new();
    margins.retain(|block| {
        let text = block.text();
        text.chars().any(char::is_alphabetic) && known.insert(text)
    });
    margins
}

/// State of a group.
#[derive(Clone, Copy)]
struct State {
    hidden: bool,
    /// Letters of an older program's version that follow a Unicode letter.
    skip: usize,
    /// Of the font.
    encoding: Option<&'static Encoding>,
}

/// The text, or a part that stands apart from it.
#[derive(Default)]
struct Part {
    collector: Collector,
    text: String,
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
    /// Footnotes and comments of the paragraph.
    notes: Vec<Block>,
}

/// Parts apart from the text around them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Apart {
    /// A text box, read before the paragraph in which it stands.
    Box,
    /// Of pages.
    Head,
    Foot,
    /// A footnote or a comment, read behind the paragraph in which it stands.
    Note,
}

/// The part of the text that another one interrupts.
struct Interrupted {
    /// How many groups are open around the other.
    depth: usize,
    by: Apart,
    part: Part,
}

struct Reader {
    /// Levels of the styles of headings, by their numbers.
    headings: HashMap<i32, u8>,
    fonts: Fonts,
    body: Part,
    heads: Vec<Block>,
    feet: Vec<Block>,
    /// Footnotes so far.
    footnotes: usize,
    state: State,
    stack: Vec<State>,
    interrupted: Vec<Interrupted>,
    /// Of fonts that have none of their own.
    encoding: &'static Encoding,
    letters: Letters,
    /// Letters that are left out, because they repeat a Unicode one.
    skipping: usize,
    high: Option<u16>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            headings: HashMap::new(),
            fonts: Fonts::default(),
            body: Part::default(),
            heads: Vec::new(),
            feet: Vec::new(),
            footnotes: 0,
            state: State { hidden: false, skip: 1, encoding: None },
            stack: Vec::new(),
            interrupted: Vec::new(),
            encoding: WINDOWS_1252,
            letters: Letters::default(),
            skipping: 0,
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
                    self.end_apart();
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
            "ansicpg" => self.encoding = rtf_letters::of_page(number.unwrap_or(1252)),
            "mac" => self.encoding = rtf_letters::of_page(10_000),
            "f" => self.state.encoding = number.and_then(|font| self.fonts.encoding(font)),
            "plain" => self.state.encoding = None,
            "header" | "headerl" | "headerr" | "headerf" if !self.state.hidden => {
                self.begin_apart(Apart::Head)
            }
            "footer" | "footerl" | "footerr" | "footerf" if !self.state.hidden => {
                self.begin_apart(Apart::Foot)
            }
            "uc" => self.state.skip = usize::try_from(number.unwrap_or(1)).unwrap_or(1),
            "u" => self.unicode(number.unwrap_or(0)),
            "par" | "sect" | "page" => self.end_paragraph(),
            "pard" => {
                self.body.outline = None;
                self.body.is_item = false;
                self.body.in_table = false;
            }
            "s" if !self.state.hidden => {
                self.body.outline = number.and_then(|style| self.headings.get(&style)).copied()
            }
            "intbl" => self.body.in_table = true,
            "cell" => {
                let text = std::mem::take(&mut self.body.text);
                self.body.row.push(text);
            }
            "row" => {
                let (texts, places) = (std::mem::take(&mut self.body.row), self.body.places.clone());
                self.body.rows.push(Row { texts, places, is_head: self.body.is_head });
            }
            "trowd" => {
                self.body.places.clear();
                (self.body.place, self.body.is_head) = (Place::default(), false);
            }
            "trhdr" => self.body.is_head = true,
            "clmrg" => self.body.place.is_merged = true,
            "clvmgf" => self.body.place.rows = Some(Merge::Starts),
            "clvmrg" => self.body.place.rows = Some(Merge::Continues),
            "cellx" => {
                let place = Place { right: number.unwrap_or(0), ..std::mem::take(&mut self.body.place) };
                self.body.places.push(place);
            }
            "outlinelevel" => {
                self.body.outline =
                    number.and_then(|level| u8::try_from(level).ok()).filter(|level| *level < 9)
            }
            "footnote" if !self.state.hidden => {
                self.footnotes += 1;
                self.begin_apart(Apart::Note);
            }
            // Programs that know no comments skip the group.
            "annotation" if self.stack.last().is_none_or(|outer| !outer.hidden) => {
                self.begin_apart(Apart::Note);
            }
            "chftn" => self.push_mark(),
            "shptxt" => self.begin_apart(Apart::Box),
            "ls" => self.body.is_item = true,
            "listtext" | "pntext" => {
                self.body.is_item = true;
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
        if !self.state.hidden {
            let letters = self.letters.take(byte, self.state.encoding.unwrap_or(self.encoding));
            self.body.text.extend(letters);
        }
    }

    fn push(&mut self, letter: char) {
        if !self.state.hidden {
            self.body.text.push(letter);
        }
    }

    fn end_paragraph(&mut self) {
        let part = &mut self.body;
        if part.in_table {
            part.text.push('\n');
            return;
        }
        part.end_table();
        part.end_paragraph();
    }

    /// Opens a part apart from the text around it, until the end of the group.
    fn begin_apart(&mut self, by: Apart) {
        let mut part = std::mem::take(&mut self.body);
        if by == Apart::Box {
            self.body.collector = std::mem::take(&mut part.collector);
        }
        self.interrupted.push(Interrupted { depth: self.stack.len(), by, part });
        self.state.hidden = false;
    }

    /// At the end of a group, which may be that of a part that stands apart.
    fn end_apart(&mut self) {
        if self.interrupted.last().is_none_or(|around| around.depth != self.stack.len()) {
            return;
        }
        let Some(Interrupted { by, part, .. }) = self.interrupted.pop() else { return };
        self.end_part();
        let Part { collector, .. } = std::mem::replace(&mut self.body, part);
        match by {
            Apart::Box => self.body.collector = collector,
            Apart::Head => self.heads.extend(collector.finish()),
            Apart::Foot => self.feet.extend(collector.finish()),
            Apart::Note => self.body.notes.extend(collector.finish()),
        }
    }

    /// The mark of the next footnote, or in a footnote its own.
    fn push_mark(&mut self) {
        let is_in_note = self.interrupted.last().is_some_and(|around| around.by == Apart::Note);
        let number = self.footnotes + usize::from(!is_in_note);
        notes::mark(&number.to_string()).chars().for_each(|sign| self.push(sign));
        if is_in_note {
            self.push(' ');
        }
    }

    fn end_part(&mut self) {
        self.body.in_table = false;
        self.body.end_table();
        self.body.end_paragraph();
    }
}

impl Part {
    fn end_paragraph(&mut self) {
        let text = std::mem::take(&mut self.text);
        match self.outline {
            Some(level) => self.collector.heading(level + 1, &text),
            None if self.is_item => self.collector.item(0, false, &text),
            None => self.collector.paragraph(&text),
        }
        std::mem::take(&mut self.notes).iter().for_each(|note| self.collector.paragraph(&note.text()));
    }

    fn end_table(&mut self) {
        if !self.rows.is_empty() {
            self.collector.table(table(std::mem::take(&mut self.rows)));
        }
    }
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
    fn heads_and_feet_of_pages_are_read_once() {
        let rtf = br"{\rtf1{\header\pard\intbl ACME\cell Report\cell\row\pard\par}{\headerl\pard Left page\par}{\headerf\pard Left page\par}
            {\footer\pard\qc 1\par Bank account 5\par}\pard First {\footerf\pard Bank account 5\par}line\par}";
        let blocks = super::read(rtf).unwrap().blocks;
        let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
        assert_eq!(texts, ["ACME\tReport", "Left page", "First line", "Bank account 5"]);
    }

    #[test]
    fn notes_and_comments_follow_their_paragraphs() {
        let rtf = br"{\rtf1 Checked{\super\chftn{\footnote\pard\plain\super\chftn In May.}} twice{\*\atnid AB}{\*\atnauthor Anna}{\*\annotation{\*\atndate 1}
            \pard Really?\par Yes.}.{\footnote\chftn By Anna.}\par End\par}";
        let blocks = super::read(rtf).unwrap().blocks;
        let texts: Vec<_> = blocks.iter().map(crate::block::Block::text).collect();
        assert_eq!(texts, ["Checked¹ twice.", "¹ In May.", "Really?", "Yes.", "² By Anna.", "End"]);
    }
}
