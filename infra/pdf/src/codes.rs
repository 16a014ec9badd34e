//! Letters of fonts that do not say which letters they are. PDFium gives their codes in the place of letters. In some fonts the codes
//! are those of letters nevertheless; in others they only number the shapes, and must not be taken for text.

use std::{
    collections::{HashMap, HashSet},
    ffi::{c_int, c_void},
};

use pdfium_render::prelude::PdfiumLibraryBindings;

use crate::{MAX_WORDS, direction::is_rtl};

/// Written for a letter whose font does not say which one it is.
pub const UNREADABLE: char = char::REPLACEMENT_CHARACTER;
/// Different codes from which on a font writes text: fewer are its bullets and spaces.
const LEAST_CODES: usize = 4;
/// Behind the Latin letters, which codes that are those of letters rarely are.
const LATIN_END: u32 = 0x250;
/// At least one in so many codes is an unlikely letter: numbers of shapes are often those of letters by chance.
const UNLIKELY_SHARE: usize = 5;
/// Letters of a page that are checked; those behind them are read as they are.
const MOST_LETTERS: c_int = 10 * MAX_WORDS as c_int;

/// A letter that has a font: its number on the page, its code or letter, and whether the font does not say which one it is.
struct Coded {
    index: c_int,
    font: *mut c_void,
    unit: u32,
    is_code: bool,
}

/// The codes of a font.
#[derive(Default)]
struct Codes {
    letters: usize,
    at: Vec<c_int>,
    /// Numbers of letters from right to left, of which PDFium does not know that they are codes.
    from_right: Vec<c_int>,
    units: HashSet<u32>,
    unlikely: usize,
}

impl Codes {
    fn add(&mut self, letter: &Coded) {
        // A space is one in fonts of every kind.
        if letter.unit == u32::from(' ') {
            return;
        }
        self.letters += 1;
        if letter.is_code {
            self.at.push(letter.index);
            self.units.insert(letter.unit);
            self.unlikely += usize::from(letter.unit < u32::from(' ') || letter.unit >= LATIN_END);
        } else if char::from_u32(letter.unit).is_some_and(is_rtl) {
            self.from_right.push(letter.index);
        }
    }

    /// Numbers of the letters that cannot be read.
    fn unreadable(mut self) -> Vec<c_int> {
        if !self.are_numbers() {
            return Vec::new();
        }
        if self.letters == self.at.len() + self.from_right.len() {
            self.at.append(&mut self.from_right);
        }
        self.at
    }

    fn are_numbers(&self) -> bool {
        self.units.len() >= LEAST_CODES
            && 2 * self.at.len() > self.letters
            && UNLIKELY_SHARE * self.unlikely >= self.at.len()
    }
}

/// The letters of an open page's text, by their numbers, whose codes are only the numbers of shapes.
pub(crate) fn unreadable(calls: &dyn PdfiumLibraryBindings, text: *mut c_void) -> HashSet<c_int> {
    let mut fonts: HashMap<*mut c_void, Codes> = HashMap::new();
    letters(calls, text).for_each(|letter| fonts.entry(letter.font).or_default().add(&letter));
    fonts.into_values().flat_map(Codes::unreadable).collect()
}

/// The letters that have a font; none unless there is one whose font does not say which it is.
fn letters(calls: &dyn PdfiumLibraryBindings, text: *mut c_void) -> impl Iterator<Item = Coded> {
    // SAFETY: the page's text is open, here and in the calls below.
    let count = unsafe { calls.FPDFText_CountChars(text.cast()) }.min(MOST_LETTERS);
    // SAFETY: as above.
    let is_code = move |index| unsafe { calls.FPDFText_HasUnicodeMapError(text.cast(), index) == 1 };
    let all = if (0..count).any(is_code) { 0..count } else { 0..0 };
    all.filter_map(move |index| {
        // SAFETY: as above.
        let object = unsafe { calls.FPDFText_GetTextObject(text.cast(), index) };
        if object.is_null() {
            return None;
        }
        // SAFETY: as above; the object belongs to the open page.
        let (font, unit) = unsafe {
            (calls.FPDFTextObj_GetFont(object).cast(), calls.FPDFText_GetUnicode(text.cast(), index))
        };
        Some(Coded { index, font, unit, is_code: is_code(index) })
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{pdf, texts};

    /// `text` in a font whose 2-byte codes are numbers of shapes, and `more` in Helvetica.
    fn numbered(codes: &str, more: &str) -> Vec<u8> {
        let font = "<</Type/Font/Subtype/Type0/BaseFont/Own/Encoding/Identity-H/DescendantFonts[7 0 R]>>";
        let below = "<</Type/Font/Subtype/CIDFontType2/BaseFont/Own/CIDSystemInfo<</Registry(Adobe)/Ordering(Identity)/Supplement 0>>\
            /FontDescriptor<</Type/FontDescriptor/FontName/Own/Flags 4>>>>";
        let text = format!("BT /N 10 Tf 50 700 Td <{codes}> Tj /F 10 Tf 0 -40 Td ({more}) Tj ET");
        let file = String::from_utf8(pdf(&text, "", "", &[font, below])).unwrap();
        file.replacen("/F 4 0 R>>/XObject", "/F 4 0 R/N 6 0 R>>/XObject", 1).into_bytes()
    }

    #[test]
    fn numbers_of_shapes_are_no_letters() {
        let found = texts(numbered("003600460044005105d10006", "beside"));
        assert_eq!(found, ["\u{FFFD}".repeat(6), "beside".to_owned()]);
    }

    #[test]
    fn codes_that_are_likely_letters_stay() {
        assert_eq!(texts(numbered("004a0075007300740069006e", "beside")), ["Justin", "beside"]);
        // A bullet that a font has beside nothing else.
        assert_eq!(texts(numbered("05d105d1", "beside")).len(), 2);
    }
}
