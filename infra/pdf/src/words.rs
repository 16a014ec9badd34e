use std::{
    collections::{HashMap, HashSet},
    ffi::{c_int, c_void},
};

use pdfium_render::prelude::PdfiumLibraryBindings;

use unicode_normalization::UnicodeNormalization;

use crate::{
    Page, boxes,
    codes::{self, UNREADABLE},
    direction::{self, Letter},
    doubles,
    frame::Frame,
    gaps, leaders, look,
    open::Open,
    scripts::{self, Run},
    units::{LINE_HYPHEN, is_first_half, letter},
};

const LINE_FEED: u32 = 0x0A;
/// How far the letters of a level word may be above and below each other, in sizes of the font.
const LEVEL: f32 = 0.1;
/// Words of a page at most; further ones are left out.
pub const MAX_WORDS: usize = 200_000;

/// A rectangle in points, from the left upper corner of the page.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: f32,
    /// Upper edge.
    pub top: f32,
    /// Right edge.
    pub right: f32,
    /// Lower edge.
    pub bottom: f32,
}

/// How a word is set.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Style {
    /// Size in points.
    pub size: f32,
    /// Heavier than normal.
    pub bold: bool,
    /// Slanted.
    pub italic: bool,
    /// All letters of equal width.
    pub mono: bool,
    /// Not from left to right.
    pub turned: bool,
}

/// Letters without a space between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Word {
    /// The letters. A hyphen that ends a line is `-`.
    pub text: String,
    /// From the first letter to the last, ascenders and descenders of the font included.
    pub area: Area,
    /// Where the letters stand.
    pub baseline: f32,
    /// Of the first letter.
    pub style: Style,
    /// How sure recognition was, 0 to 1; none for text that was in the file.
    pub confidence: Option<f32>,
}

impl Area {
    /// From left to right.
    pub fn width(&self) -> f32 {
        self.right - self.left
    }

    /// From top to bottom.
    pub fn height(&self) -> f32 {
        self.bottom - self.top
    }

    /// The smallest that holds both.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }
}

/// The words of `page`; none if PDFium cannot read it.
pub(crate) fn read(page: &Page<'_>) -> Option<Vec<Word>> {
    let calls = &*page.document.library.calls;
    // SAFETY: the page is open.
    let text = unsafe { calls.FPDFText_LoadPage(page.handle.cast()) };
    if text.is_null() {
        return None;
    }
    let reader = Reader {
        calls,
        text: text.cast(),
        frame: page.frame,
        fonts: HashMap::new(),
        styled: (std::ptr::null_mut(), Style::default()),
        leader: None,
        unreadable: codes::unreadable(calls, text.cast()),
    };
    let mut words = reader.read();
    leaders::join(&mut words);
    doubles::take_out(&mut words);
    // SAFETY: closed once, before the page.
    unsafe { calls.FPDFText_ClosePage(text) };
    Some(words)
}

struct Reader<'a> {
    calls: &'a dyn PdfiumLibraryBindings,
    text: *mut c_void,
    frame: Frame,
    /// By handle: bold, italic, of equal width.
    fonts: HashMap<*mut c_void, (bool, bool, bool)>,
    /// The piece of text whose style was asked last, and its style.
    styled: (*mut c_void, Style),
    /// The piece of text that the dot before is of, and where PDFium says that it stands.
    leader: Option<(*mut c_void, (f64, f64))>,
    /// Numbers of letters whose fonts only number them.
    unreadable: HashSet<c_int>,
}

/// Start of one of PDFium's lines, and whether it has right-to-left letters.
#[derive(Default)]
struct LineStart {
    index: c_int,
    /// Words before it.
    words: usize,
    is_rtl: bool,
}

impl Reader<'_> {
    fn read(mut self) -> Vec<Word> {
        // SAFETY: the text page is open, here and in the calls below; wrong numbers are refused by PDFium.
        let count = unsafe { self.calls.FPDFText_CountChars(self.text.cast()) };
        let mut words = Vec::with_capacity((count.max(0) as usize / 5).min(MAX_WORDS));
        let (mut open, mut line) = (Open::default(), LineStart::default());
        let mut high = None;
        for index in 0..count {
            let unit = self.unit(index);
            match letter(unit, &mut high) {
                Some(letter) => {
                    line.is_rtl |= direction::is_rtl(letter);
                    open.push(letter, index);
                }
                // Half a letter ends no word.
                None if open.is_empty() || high.is_some() || self.is_within_word(&open, unit, index) => {}
                None => self.close(&mut open, &mut words),
            }
            if unit == LINE_FEED {
                self.close_line(line, index, &mut words);
                line = LineStart { index: index + 1, words: words.len(), is_rtl: false };
            }
            // One more shows that words were left out.
            if words.len() > MAX_WORDS {
                words.truncate(MAX_WORDS + 1);
                return words;
            }
        }
        if !open.is_empty() {
            self.close(&mut open, &mut words);
        }
        self.close_line(line, count, &mut words);
        words
    }

    /// Reads a line with letters from right to left again, by where they stand.
    fn close_line(&mut self, line: LineStart, end: c_int, words: &mut Vec<Word>) {
        if !line.is_rtl || words[line.words..].iter().any(|word| word.style.turned) {
            return;
        }
        words.truncate(line.words);
        for letters in direction::words(self.letters(line.index, end)) {
            let Some(first) = letters.first() else { continue };
            let (mut area, mut text) = (first.area, String::new());
            let mut runs: Vec<Run> = Vec::new();
            for Letter { letter, area: place, baseline, size, .. } in &letters {
                let run = Run { start: text.len(), baseline: *baseline, size: *size };
                if !runs.last().is_some_and(|last| last.is_set_like(&run)) {
                    runs.push(run);
                }
                area = area.union(place);
                text.push(*letter);
            }
            scripts::set(&mut text, &runs);
            words.push(Word {
                text,
                area,
                baseline: first.baseline,
                style: self.style(self.object(first.index), first.index),
                confidence: None,
            });
        }
    }

    /// The letters and spaces of a range that the file has, and PDFium did not make up.
    fn letters(&mut self, start: c_int, end: c_int) -> Vec<Letter> {
        let (mut letters, mut high) = (Vec::new(), None);
        for index in start..end {
            let unit = self.unit(index);
            let is_made_up = self.is_made_up(index);
            let is_space = char::from_u32(unit).is_some_and(char::is_whitespace);
            let shown = if is_space { Some(' ') } else { letter(unit, &mut high) };
            let Some(shown) = shown.filter(|_| !is_made_up) else { continue };
            let origin = self.origin(index);
            let (_, baseline) = self.frame.seen(origin.0 as f32, origin.1 as f32);
            let (area, size) = (self.letter_area(index), self.style(self.object(index), index).size);
            // Shapes of joined letters become letters, in reverse, because the whole word is turned round later.
            let pieces: Vec<char> =
                if direction::is_shape(shown) { shown.nfkc().collect() } else { vec![shown] };
            for letter in pieces.into_iter().rev() {
                letters.push(Letter { letter, area, baseline, size, index, is_space });
            }
        }
        letters
    }

    /// Ends a word. If it began in another piece of text than it ended in, the pieces may lie apart: without a space
    /// between them, but in another line or column. Each call into the library costs, so only then each letter is asked.
    fn close(&mut self, open: &mut Open, words: &mut Vec<Word>) {
        let object = self.object(open.first());
        if open.numbers.len() == 1 || object == self.object(open.last()) {
            self.close_piece(open, object, words);
            return;
        }
        let (mut part, mut object) = (Open::default(), object);
        let (mut style, mut before) = (self.style(object, open.first()), self.origin(open.first()));
        let mut runs = vec![self.run(0, before, style)];
        for (letter, index) in open.letters() {
            let (of, origin) = (self.object(index), self.origin(index));
            if of != object {
                let next = self.style(of, index);
                let is_apart = gaps::is_elsewhere(before, style, origin, next)
                    || (letter == '.' && self.starts_leader(index));
                if is_apart && !part.is_empty() {
                    scripts::set(&mut part.text, &std::mem::take(&mut runs));
                    let first = self.object(part.first());
                    self.close_piece(&mut part, first, words);
                }
                (object, style) = (of, next);
                let run = self.run(part.text.len(), origin, style);
                if !runs.last().is_some_and(|last| last.is_set_like(&run)) {
                    runs.push(run);
                }
            }
            before = origin;
            part.push(letter, index);
        }
        scripts::set(&mut part.text, &runs);
        let first = self.object(part.first());
        self.close_piece(&mut part, first, words);
        open.clear();
    }

    fn run(&self, start: usize, origin: (f64, f64), style: Style) -> Run {
        let (_, baseline) = self.frame.seen(origin.0 as f32, origin.1 as f32);
        Run { start, baseline, size: style.size }
    }

    /// Ends a word whose letters stand beside each other. Words that are set close together have no space between them for
    /// PDFium; a gap that is wider than the others parts them, while letters that are spaced evenly stay one word.
    fn close_piece(&mut self, piece: &mut Open, object: *mut c_void, words: &mut Vec<Word>) {
        if piece.text == "." && self.continues_leader(piece.first(), object) {
            let area = self.dot_area(piece.first());
            if let Some(leader) = words.last_mut().filter(|word| word.text.bytes().all(|byte| byte == b'.')) {
                leader.text.push('.');
                leader.area = leader.area.union(&area);
                piece.clear();
                return;
            }
        }
        let style = self.style(object, piece.first());
        let ends = self.ends_of_words(piece, style);
        if ends.is_empty() {
            words.push(self.word(piece, object));
            return;
        }
        let mut part = Open::default();
        for (at, (letter, number)) in piece.letters().enumerate() {
            part.push(letter, number);
            if ends.contains(&at) {
                words.push(self.word(&mut part, object));
            }
        }
        words.push(self.word(&mut part, object));
        piece.clear();
    }

    /// Whether a dot of a leader follows, whose places are made up: the text that a file gives for a piece of text stands at one
    /// place for PDFium, which divides the area of the piece among its letters.
    fn starts_leader(&self, index: c_int) -> bool {
        self.unit(index + 1) == u32::from(' ')
            && self.unit(index + 2) == u32::from('.')
            && self.object(index) == self.object(index + 2)
            && self.origin(index) == self.origin(index + 2)
    }

    /// Whether a dot belongs to the leader of the dot before. The leader is one word: it is somewhere, its dots are not.
    fn continues_leader(&mut self, dot: c_int, object: *mut c_void) -> bool {
        let at = Some((object, self.origin(dot)));
        std::mem::replace(&mut self.leader, at) == at
    }

    /// The area of a dot of a leader with that of the space behind it, between which the places are divided as if both were as wide.
    fn dot_area(&self, dot: c_int) -> Area {
        let area = self.letter_area(dot);
        let is_followed = self.unit(dot + 1) == u32::from(' ') && self.object(dot + 1) == self.object(dot);
        if is_followed { area.union(&self.letter_area(dot + 1)) } else { area }
    }

    /// The gaps between the letters of `piece`, in sizes of its font.
    fn gaps(&self, piece: &Open, style: Style) -> impl Iterator<Item = f32> {
        let mut right = self.letter_area(piece.first()).right;
        piece.numbers[1..].iter().map(move |number| {
            let area = self.letter_area(*number);
            let gap = (area.left - right) / style.size;
            right = area.right;
            gap
        })
    }

    /// The letters of `piece`, by number, behind which there is a gap.
    fn ends_of_words(&self, piece: &Open, style: Style) -> Vec<usize> {
        if piece.numbers.len() < 3 || style.turned || style.size <= 0.0 {
            return Vec::new();
        }
        // Most words have no gap at all.
        if !self.gaps(piece, style).any(|gap| gap >= gaps::LEAST) {
            return Vec::new();
        }
        let gaps: Vec<f32> = self.gaps(piece, style).collect();
        let mut ends = gaps::between_words(&gaps, self.is_beside_space(piece));
        if !ends.is_empty() {
            let letters: Vec<char> = piece.text.chars().collect();
            ends.retain(|end| gaps::may_part(letters[*end], letters[end + 1]));
        }
        ends
    }

    /// Whether a space of the file, which PDFium did not make up, stands before or behind `piece`.
    fn is_beside_space(&self, piece: &Open) -> bool {
        let halves = 1 + c_int::from(is_first_half(self.unit(piece.first() - 1)));
        [piece.first() - halves, piece.last() + 1]
            .into_iter()
            .any(|index| self.unit(index) == u32::from(' ') && !self.is_made_up(index))
    }

    /// Whether PDFium found a letter or space in no file, but in the places of those around it.
    fn is_made_up(&self, index: c_int) -> bool {
        // SAFETY: as in `read`.
        unsafe { self.calls.FPDFText_IsGenerated(self.text.cast(), index) == 1 }
    }

    /// Whether PDFium made up a space, `unit` at `index`, between letters of one word: where letters are spaced, it takes the last one
    /// of a piece of text to be further away than it is.
    fn is_within_word(&mut self, open: &Open, unit: u32, index: c_int) -> bool {
        let [.., before, last] = open.numbers[..] else { return false };
        if unit != u32::from(' ') || !self.is_made_up(index) || self.object(index + 1).is_null() {
            return false;
        }
        let object = self.object(last);
        let style = self.style(object, last);
        let spacing = self.letter_area(last).left - self.letter_area(before).right;
        if style.turned || self.object(before) != object || !gaps::are_spaced(spacing, style.size) {
            return false;
        }
        let gap = self.letter_area(index + 1).left - self.letter_area(last).right;
        let is_alike = self.style(self.object(index + 1), index + 1).size == style.size;
        is_alike && self.origin(last).1 == self.origin(index + 1).1 && gaps::is_even(spacing, gap, style.size)
    }

    /// The letters that were read as a word; the next one can be read after it.
    fn word(&mut self, open: &mut Open, object: *mut c_void) -> Word {
        let (first, last) = (open.first(), open.last());
        let mut area = self.letter_area(first);
        if last != first {
            area = area.union(&self.letter_area(last));
        }
        let origin = self.origin(first);
        let (_, baseline) = self.frame.seen(origin.0 as f32, origin.1 as f32);
        let style = self.style(object, first);
        // The box of a line that slopes is high, too.
        let is_level = || {
            let (x, y) = self.origin(last);
            (self.frame.seen(x as f32, y as f32).1 - baseline).abs() < LEVEL * style.size
        };
        if !style.turned
            && (boxes::is_low(area, style.size) || boxes::is_high(area, style.size) && is_level())
        {
            area = boxes::as_high_as_line(area, baseline, style.size);
        }
        Word { text: open.take(), area, baseline, style, confidence: None }
    }

    /// A letter as PDFium gives it. A hyphen at the end of a line has a sign of its own, which the code of a letter may be, too, that
    /// is no more than a space if its font does not say which.
    fn unit(&self, index: c_int) -> u32 {
        if self.unreadable.contains(&index) {
            return u32::from(UNREADABLE);
        }
        // SAFETY: as in `read`.
        let unit = unsafe { self.calls.FPDFText_GetUnicode(self.text.cast(), index) };
        // SAFETY: as in `read`.
        let is_hyphen = || unsafe { self.calls.FPDFText_IsHyphen(self.text.cast(), index) == 1 };
        if unit == LINE_HYPHEN && !is_hyphen() { u32::from(' ') } else { unit }
    }

    fn object(&self, index: c_int) -> *mut c_void {
        // SAFETY: as in `read`.
        unsafe { self.calls.FPDFText_GetTextObject(self.text.cast(), index) }.cast()
    }

    fn origin(&self, index: c_int) -> (f64, f64) {
        let (mut x, mut y) = (0.0, 0.0);
        // SAFETY: as in `read`; the targets live through the call.
        unsafe { self.calls.FPDFText_GetCharOrigin(self.text.cast(), index, &mut x, &mut y) };
        (x, y)
    }

    fn letter_area(&self, index: c_int) -> Area {
        // SAFETY: as in `read`; the type of the rectangle, which has no public name, is plain floats.
        let (one, other) = unsafe {
            let mut rectangle = std::mem::zeroed();
            self.calls.FPDFText_GetLooseCharBox(self.text.cast(), index, &mut rectangle);
            ((rectangle.left, rectangle.top), (rectangle.right, rectangle.bottom))
        };
        self.frame.seen_area(one, other)
    }

    /// The style of an object, of which the letter at `index` is.
    fn style(&mut self, object: *mut c_void, index: c_int) -> Style {
        if object.is_null() || object == self.styled.0 {
            return self.styled.1;
        }
        let style = self.read_style(object, index);
        self.styled = (object, style);
        style
    }

    fn read_style(&mut self, object: *mut c_void, index: c_int) -> Style {
        let mut size = 0.0;
        // SAFETY: the object belongs to the open page; the matrix, whose type has no public name, is plain floats.
        let (font, a, b, c, d): (*mut c_void, f32, f32, f32, f32) = unsafe {
            self.calls.FPDFTextObj_GetFontSize(object.cast(), &mut size);
            let mut matrix = std::mem::zeroed();
            // That of the letter: an object may be in a form that is turned.
            self.calls.FPDFText_GetMatrix(self.text.cast(), index, &mut matrix);
            (self.calls.FPDFTextObj_GetFont(object.cast()).cast(), matrix.a, matrix.b, matrix.c, matrix.d)
        };
        let (bold, italic, mono) = match self.fonts.get(&font) {
            Some(known) => *known,
            None => *self.fonts.entry(font).or_insert(look::of(self.calls, font)),
        };
        // A page that is turned is read turned back.
        let (x, y) = (self.frame.seen(a, b), self.frame.seen(0.0, 0.0));
        let (along, across) = (x.0 - y.0, x.1 - y.1);
        Style { size: size * c.hypot(d), bold, italic, mono, turned: along <= across.abs() }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, texts, words};

    #[test]
    fn raised_and_lowered_digits_are_distinguished() {
        let text = "BT /F 12 Tf 50 700 Td (10) Tj /F 7 Tf 5 Ts (6) Tj /F 12 Tf 0 Ts ( H) Tj /F 7 Tf -3 Ts (2) Tj /F 12 Tf 0 Ts \
            (O 1) Tj /F 7 Tf 5 Ts (st) Tj ET";
        assert_eq!(texts(pdf(text, "", "", &[])), ["10⁶", "H₂O", "1st"]);
    }

    #[test]
    fn dots_of_a_leader_with_text_of_its_own_are_one_word_as_high_as_its_line() {
        let leader = "/Span<</ActualText(. . . . )>>BDC ( . . . . ) Tj EMC";
        let text = format!("BT /F 10 Tf 50 700 Td (Title) Tj {leader} ( 12) Tj ET");
        let words = words(pdf(&text, "", "", &[]));
        let texts: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, ["Title", "....", "12"]);
        // To its end: dots that are set behind a space stand where spaces are taken to be.
        assert!(words[1].area.right > 90.0, "{words:?}");
        assert!((words[1].area.top - 92.5).abs() < 0.1 && (words[1].area.bottom - 102.5).abs() < 0.1);
    }
}
