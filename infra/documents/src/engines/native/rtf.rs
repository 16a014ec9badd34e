//! Rich text after Microsoft's specification 1.9.1: paragraphs, headings by outline level, tables, bullets.

use std::{collections::HashMap, rc::Rc};

use encoding_rs::{Encoding, WINDOWS_1252};

use super::{
    Content,
    collect::Collector,
    docx_table::Merge,
    margins::MarginTexts,
    notes,
    rtf_letters::{self, Fonts, Letters},
    rtf_table::{Place, Row, table},
};
use crate::{block::Block, failure::Failure};

/// Groups within groups at most.
const DEPTH: usize = 1000;
/// Cells of a row whose places are read.
const CELLS: usize = 256;
/// Letters that repeat a Unicode one at most.
const MOST_SKIPPED: usize = 100;
/// Groups that hold no text of the document.
const HIDDEN: [&str; 19] = [
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
    "xe",
    "tc",
    "tcn",
    "rxe",
    "shprslt",
    "upr",
    "nonesttables",
];

/// Reads a text with the headers of its pages before it and the footers behind it, each once.
pub(super) fn read(bytes: &[u8]) -> Result<Content, Failure> {
    let (headings, fonts) = (headings(bytes), Fonts::read(bytes));
    let mut reader = Reader { headings, fonts, ..Reader::default() };
    reader.run(bytes)?;
    reader.end_parts(0);
    reader.end_part();
    let mut blocks = without_repeated(reader.heads);
    blocks.extend(reader.body.collector.finish());
    blocks.extend(without_repeated(reader.feet));
    Ok(Content { blocks, ..Content::default() })
}

fn without_repeated(mut margins: Vec<Block>) -> Vec<Block> {
    let mut known = MarginTexts::default();
    margins.retain(|block| known.is_new(&block.text()));
    margins
}

/// State of a group.
#[derive(Clone, Copy)]
struct State {
    hidden: bool,
    /// Letters of an older program's version that follow a Unicode letter.
    skip: usize,
    /// None for that of the whole text.
    font: Option<i32>,
    /// Whether nothing of the group has been read.
    is_new: bool,
    /// Whether the group repeats what was read, for older programs.
    is_repeated: bool,
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
    places: Rc<Vec<Place>>,
    /// The cell that is described.
    place: Place,
    is_head: bool,
    /// Footnotes and comments of the paragraph.
    notes: Vec<String>,
    notes_of_table: Vec<String>,
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
    default_font: Option<i32>,
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
            state: State { hidden: false, skip: 1, font: None, is_new: false, is_repeated: false },
            stack: Vec::new(),
            interrupted: Vec::new(),
            encoding: WINDOWS_1252,
            default_font: None,
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
                    self.stack.push(State { is_new: false, ..self.state });
                    self.state.is_new = true;
                    self.end_letter();
                    at += 1;
                }
                b'}' => {
                    self.end_letter();
                    self.end_parts(self.stack.len());
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
        let is_new = std::mem::take(&mut self.state.is_new);
        let is_shown_around = self.stack.last().is_none_or(|outer| !outer.hidden);
        self.end_bytes();
        // A control word counts as a letter.
        let is_skipped = self.skipping > 0;
        self.skipping = self.skipping.saturating_sub(1);
        match word {
            "emdash" | "endash" | "bullet" | "lquote" | "rquote" | "ldblquote" | "rdblquote"
                if is_skipped => {}
            _ if HIDDEN.contains(&word) => {
                self.state.hidden = true;
                self.state.is_repeated |= word == "shprslt";
            }
            "deleted" if number != Some(0) => self.state.hidden = true,
            // Within a hidden group, the part for readers like this one.
            "ud" | "result" if is_new => {
                self.state.hidden = self.stack.iter().rev().nth(1).is_some_and(|around| around.hidden);
            }
            // The paragraph around continues behind hidden groups.
            "par" | "sect" | "page" | "pard" | "intbl" | "cell" | "row" if self.state.hidden => {}
            "ansicpg" => self.encoding = rtf_letters::of_page(number.unwrap_or(1252)),
            "deff" => self.default_font = number,
            "mac" => self.encoding = rtf_letters::of_page(10_000),
            "f" => self.state.font = number,
            "plain" => self.state.font = None,
            "header" | "headerl" | "headerr" | "headerf" if is_new && is_shown_around => {
                self.begin_apart(Apart::Head)
            }
            "footer" | "footerl" | "footerr" | "footerf" if is_new && is_shown_around => {
                self.begin_apart(Apart::Foot)
            }
            "uc" => self.state.skip = usize::try_from(number.unwrap_or(1)).unwrap_or(1).min(MOST_SKIPPED),
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
                self.end_letter();
                let part = &mut self.body;
                part.notes_of_table.append(&mut part.notes);
            }
            "row" => {
                let rest = std::mem::take(&mut self.body.text);
                self.body.row.extend(Some(rest).filter(|text| !text.trim().is_empty()));
                let (texts, places) = (std::mem::take(&mut self.body.row), Rc::clone(&self.body.places));
                self.body.rows.push(Row { texts, places, is_head: self.body.is_head });
            }
            "trowd" => {
                self.body.places = Rc::default();
                (self.body.place, self.body.is_head) = (Place::default(), false);
            }
            "trhdr" => self.body.is_head = true,
            "clmrg" => self.body.place.is_merged = true,
            "clvmgf" => self.body.place.rows = Some(Merge::Starts),
            "clvmrg" => self.body.place.rows = Some(Merge::Continues),
            "cellx" => {
                let place = Place { right: number.unwrap_or(0), ..std::mem::take(&mut self.body.place) };
                let places = Rc::make_mut(&mut self.body.places);
                if places.len() < CELLS {
                    places.push(place);
                }
            }
            "outlinelevel" => {
                self.body.outline =
                    number.and_then(|level| u8::try_from(level).ok()).filter(|level| *level < 9)
            }
            // Programs that know none skip the group.
            "footnote" | "annotation" if is_new && is_shown_around => self.begin_apart(Apart::Note),
            "chftn" => self.push_mark(),
            // A box for programs of 1995. Newer ones repeat theirs for them.
            "dptxbxtext" if !self.state.is_repeated => self.begin_apart(Apart::Box),
            "nestcell" => self.push('\t'),
            "nestrow" => self.push('\n'),
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
        self.state.is_new = false;
        if self.skipping > 0 {
            self.skipping -= 1;
            return;
        }
        if !self.state.hidden {
            let font = self.state.font.or(self.default_font);
            let encoding = font.and_then(|font| self.fonts.encoding(font)).unwrap_or(self.encoding);
            let letters = self.letters.take(byte, encoding);
            self.body.text.extend(letters);
        }
    }

    fn push(&mut self, letter: char) {
        if !self.state.hidden {
            self.body.text.push(letter);
        }
    }

    /// At a place that ends every letter.
    fn end_letter(&mut self) {
        self.end_bytes();
        self.skipping = 0;
    }

    /// Marks a letter of which bytes are missing.
    fn end_bytes(&mut self) {
        if self.letters.clear() {
            self.push('\u{FFFD}');
        }
    }

    fn end_paragraph(&mut self) {
        self.end_letter();
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

    /// Ends the parts apart that opened in groups from `depth` on.
    fn end_parts(&mut self, depth: usize) {
        while let Some(interrupted) = self.interrupted.pop_if(|around| around.depth >= depth) {
            self.end_part();
            self.go_on(interrupted);
        }
    }

    fn go_on(&mut self, Interrupted { by, part, .. }: Interrupted) {
        let Part { collector, .. } = std::mem::replace(&mut self.body, part);
        match by {
            Apart::Box => self.body.collector = collector,
            Apart::Head => self.heads.extend(collector.finish()),
            Apart::Foot => self.feet.extend(collector.finish()),
            Apart::Note => self.body.notes.extend(collector.finish().iter().map(Block::text)),
        }
    }

    /// The mark of the next footnote, or in a footnote its own.
    fn push_mark(&mut self) {
        let is_in_note = self.interrupted.last().is_some_and(|around| around.by == Apart::Note);
        self.footnotes += usize::from(!is_in_note);
        notes::mark(&self.footnotes.to_string()).chars().for_each(|sign| self.push(sign));
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
        std::mem::take(&mut self.notes).iter().for_each(|note| self.collector.paragraph(note));
    }

    fn end_table(&mut self) {
        // A row that does not end is one all the same.
        if !self.row.is_empty() {
            let (texts, places) = (std::mem::take(&mut self.row), Rc::clone(&self.places));
            self.rows.push(Row { texts, places, is_head: self.is_head });
        }
        if !self.rows.is_empty() {
            self.collector.table(table(std::mem::take(&mut self.rows)));
        }
        std::mem::take(&mut self.notes_of_table).iter().for_each(|note| self.collector.paragraph(note));
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
