use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
};

use pdfium_render::prelude::PdfiumLibraryBindings;

use crate::{Page, page::Frame};

/// How a line's hyphen is told by PDFium, since it may be joined with what follows.
const LINE_HYPHEN: u32 = 0x02;
const SOFT_HYPHEN: u32 = 0xAD;
/// Bits of the font flags, ISO 32000-1 table 123.
const FIXED_PITCH: c_int = 1;
const ITALIC: c_int = 1 << 6;
const FORCE_BOLD: c_int = 1 << 18;
/// A weight from which on a font is bold, as in CSS.
const BOLD: c_int = 600;
/// Words of a page at most: what is more is nothing that people read.
const MAX_WORDS: usize = 200_000;

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
    };
    let words = reader.read();
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
}

impl Open {
    fn push(&mut self, letter: char, index: c_int) {
        if self.letters == 0 {
            self.first = index;
        }
        (self.last, self.letters) = (index, self.letters + 1);
        self.text.push(letter);
    }
}

/// A word that is being read: its letters, and the number of each.
#[derive(Default)]
struct Open {
    text: String,
    first: c_int,
    last: c_int,
    letters: c_int,
}

impl Reader<'_> {
    fn read(mut self) -> Vec<Word> {
        // SAFETY: the text page is open, here and in the calls below; wrong numbers are refused by PDFium.
        let count = unsafe { self.calls.FPDFText_CountChars(self.text.cast()) };
        let mut words = Vec::with_capacity((count.max(0) as usize / 5).min(MAX_WORDS));
        let mut open = Open::default();
        let mut high = None;
        for index in 0..count {
            // SAFETY: as above.
            let unit = unsafe { self.calls.FPDFText_GetUnicode(self.text.cast(), index) };
            match letter(unit, &mut high) {
                Some(letter) => open.push(letter, index),
                None if open.letters > 0 => self.close(std::mem::take(&mut open), &mut words),
                None => {}
            }
            if words.len() >= MAX_WORDS {
                return words;
            }
        }
        if open.letters > 0 {
            self.close(open, &mut words);
        }
        words
    }

    /// Ends a word. If it began in another piece of text than it ended in, the pieces may lie apart: without a space
    /// between them, but in another line or column. Each call into the library costs, so only then each letter is asked.
    fn close(&mut self, open: Open, words: &mut Vec<Word>) {
        let object = self.object(open.first);
        if open.letters == 1 || object == self.object(open.last) {
            words.push(self.word(open.text, open.first, open.last, object));
            return;
        }
        let (mut part, mut object) = (Open::default(), object);
        let (mut style, mut before) = (self.style(object), self.origin(open.first));
        let step = (open.last - open.first + 1) / open.letters;
        for (at, letter) in open.text.chars().enumerate() {
            let index = if step == 1 { open.first + at as c_int } else { open.first };
            let (of, origin) = (self.object(index), self.origin(index));
            if of != object {
                let next = self.style(of);
                if is_elsewhere(before, style, origin, next) && part.letters > 0 {
                    let part = std::mem::take(&mut part);
                    words.push(self.word(part.text, part.first, part.last, object));
                }
                (object, style) = (of, next);
            }
            before = origin;
            part.push(letter, index);
        }
        words.push(self.word(part.text, part.first, part.last.max(open.last), object));
    }

    fn word(&mut self, text: String, first: c_int, last: c_int, object: *mut c_void) -> Word {
        let mut area = self.letter_area(first);
        if last != first {
            area = area.union(&self.letter_area(last));
        }
        let origin = self.origin(first);
        let (_, baseline) = self.frame.seen(origin.0 as f32, origin.1 as f32);
        Word { text, area, baseline, style: self.style(object) }
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

    fn style(&mut self, object: *mut c_void) -> Style {
        if object.is_null() || object == self.styled.0 {
            return self.styled.1;
        }
        let style = self.read_style(object);
        self.styled = (object, style);
        style
    }

    fn read_style(&mut self, object: *mut c_void) -> Style {
        let mut size = 0.0;
        // SAFETY: the object belongs to the open page; the matrix, whose type has no public name, is plain floats.
        let (font, a, b, c, d): (*mut c_void, f32, f32, f32, f32) = unsafe {
            self.calls.FPDFTextObj_GetFontSize(object.cast(), &mut size);
            let mut matrix = std::mem::zeroed();
            self.calls.FPDFPageObj_GetMatrix(object.cast(), &mut matrix);
            (self.calls.FPDFTextObj_GetFont(object.cast()).cast(), matrix.a, matrix.b, matrix.c, matrix.d)
        };
        let (bold, italic, mono) = match self.fonts.get(&font) {
            Some(known) => *known,
            None => *self.fonts.entry(font).or_insert(look_of(self.calls, font)),
        };
        // A page that is turned is read turned back.
        let (x, y) = (self.frame.seen(a, b), self.frame.seen(0.0, 0.0));
        let (along, across) = (x.0 - y.0, x.1 - y.1);
        Style { size: size * c.hypot(d), bold, italic, mono, turned: along <= across.abs() }
    }
}

/// The letter that `unit` of UTF-16 or UTF-32 completes; none for spaces and what cannot be seen.
fn letter(unit: u32, high: &mut Option<u32>) -> Option<char> {
    match unit {
        LINE_HYPHEN => Some('-'),
        SOFT_HYPHEN => Some('\u{AD}'),
        0xD800..=0xDBFF => {
            *high = Some(unit);
            None
        }
        0xDC00..=0xDFFF => {
            let high = high.take()?;
            char::from_u32(0x1_0000 + ((high - 0xD800) << 10) + (unit - 0xDC00))
        }
        0xFFFE | 0xFFFF => None,
        _ => char::from_u32(unit).filter(|letter| !letter.is_whitespace() && !letter.is_control()),
    }
}

/// Whether a letter at `to` cannot belong to the word of one at `from`, although there is no space between them.
fn is_elsewhere(from: (f64, f64), style: Style, to: (f64, f64), next: Style) -> bool {
    if style.turned || next.turned {
        return style.turned != next.turned;
    }
    let size = f64::from(style.size.max(next.size)).max(1.0);
    let (along, across) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
    // On a turned page along and across are exchanged; there, PDFium's own spaces have to do.
    let (along, across) = if across > along { (across, along) } else { (along, across) };
    across > 0.6 * size || along > 3.0 * size
}

fn look_of(calls: &dyn PdfiumLibraryBindings, font: *mut c_void) -> (bool, bool, bool) {
    if font.is_null() {
        return (false, false, false);
    }
    let mut name = [0_u8; 256];
    // SAFETY: the font belongs to the open page; the buffer is as long as said.
    let (flags, weight) = unsafe {
        calls.FPDFFont_GetBaseFontName(font.cast(), name.as_mut_ptr().cast(), name.len() as _);
        (calls.FPDFFont_GetFlags(font.cast()), calls.FPDFFont_GetWeight(font.cast()))
    };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let (flags, weight) = (flags.max(0), weight.max(0));
    (
        weight >= BOLD || flags & FORCE_BOLD != 0 || says(&["bold", "black", "heavy", "demi"]),
        flags & ITALIC != 0 || says(&["italic", "oblique"]),
        flags & FIXED_PITCH != 0 || says(&["mono", "courier", "consol"]),
    )
}
