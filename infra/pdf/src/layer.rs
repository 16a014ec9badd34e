//! Text that is found, selected and copied, but not seen, put over the pages of a PDF.

use std::{
    collections::HashMap,
    ffi::{c_int, c_ulong, c_void},
    fmt::Write as _,
};

use pdfium_render::prelude::PdfiumLibraryBindings;

use crate::{Document, PdfError, direction, frame::Frame, page};

/// A TrueType font of one glyph, as wide as the font is large: three points on a diagonal, which enclose nothing. An empty
/// glyph has no bounds, and PDFium then finds neither words of one letter nor upright lines.
const BLANK: &[u8] = include_bytes!("blank.ttf");
/// The glyph, as the map from characters to glyphs names it.
const GLYPH: [u8; 2] = [0, 1];
/// Codes have two bytes, and 0 stays free.
const MAX_CODES: usize = 0xFFFF;
/// Entries of one section of a map to Unicode at most, by its specification.
const SECTION: usize = 100;
/// `FPDF_TEXTRENDERMODE_INVISIBLE` of `fpdf_edit.h`.
const INVISIBLE: c_int = 3;
/// `FPDF_NO_INCREMENTAL` of `fpdf_save.h`.
const WHOLE: c_ulong = 2;
/// Shorter words have no direction, in points.
const SHORT: f32 = 0.01;
/// Width of a letter whose word has no width, in sizes of the font.
const LETTER: f32 = 0.5;

/// Unseen words of a page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// Number of the page, from 0.
    pub page: usize,
    /// Of the page as it is seen, in the unit of its words' places.
    pub width: f32,
    /// In the same unit.
    pub height: f32,
    /// In reading order.
    pub words: Vec<UnseenWord>,
}

/// A word of a layer. Places are from the left upper corner of the page as it is seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UnseenWord {
    /// In the order in which it is read.
    pub text: String,
    /// Left end of the line on which it stands.
    pub from: (f32, f32),
    /// The right end.
    pub to: (f32, f32),
    /// Size of its letters.
    pub size: f32,
}

/// A number for each character that is used; fonts have no letters but these.
#[derive(Default)]
struct Codes {
    of: HashMap<char, u32>,
    letters: Vec<char>,
}

impl Codes {
    fn of(layers: &[Layer]) -> Self {
        let mut codes = Self::default();
        for letter in layers.iter().flat_map(|layer| &layer.words).flat_map(|word| word.text.chars()) {
            if codes.letters.len() < MAX_CODES && !codes.of.contains_key(&letter) {
                codes.letters.push(letter);
                codes.of.insert(letter, codes.letters.len() as u32);
            }
        }
        codes
    }

    fn encode(&self, text: &str) -> Vec<u32> {
        shown_order(text).into_iter().filter_map(|letter| self.of.get(&letter).copied()).collect()
    }

    /// The map from codes to Unicode, <https://adobe-type-tools.github.io/font-tech-notes/pdfs/5411.ToUnicode.pdf>.
    fn to_unicode(&self) -> String {
        let mut map = "/CIDInit /ProcSet findresource begin\n12 dict begin\nbegincmap\n\
            /CIDSystemInfo <</Registry (Adobe) /Ordering (UCS) /Supplement 0>> def\n\
            /CMapName /Adobe-Identity-UCS def\n/CMapType 2 def\n\
            1 begincodespacerange\n<0000> <FFFF>\nendcodespacerange\n"
            .to_owned();
        for (section, letters) in self.letters.chunks(SECTION).enumerate() {
            // Writing to a string does not fail.
            let _ = writeln!(map, "{} beginbfchar", letters.len());
            for (index, letter) in letters.iter().enumerate() {
                let code = section * SECTION + index + 1;
                let mut units = [0; 2];
                let units: String =
                    letter.encode_utf16(&mut units).iter().map(|unit| format!("{unit:04X}")).collect();
                let _ = writeln!(map, "<{code:04X}> <{units}>");
            }
            map.push_str("endbfchar\n");
        }
        map.push_str("endcmap\nCMapName currentdict /CMap defineresource pop\nend\nend\n");
        map
    }

    /// All codes show the one glyph.
    fn to_glyphs(&self) -> Vec<u8> {
        GLYPH.repeat(self.letters.len() + 1)
    }
}

/// The letters of a word from left to right: files hold what is seen, and their readers turn it round.
fn shown_order(text: &str) -> Vec<char> {
    let letters: Vec<char> = text.chars().collect();
    if !letters.iter().copied().any(direction::is_rtl) {
        return letters;
    }
    let is_ltr = |letter: &char| letter.is_alphanumeric() && !direction::is_rtl(*letter);
    let runs: Vec<&[char]> = letters.chunk_by(|one, other| is_ltr(one) && is_ltr(other)).collect();
    runs.into_iter().rev().flatten().map(|letter| mirrored(*letter)).collect()
}

fn mirrored(letter: char) -> char {
    match letter {
        '(' => ')',
        ')' => '(',
        '[' => ']',
        ']' => '[',
        '{' => '}',
        '}' => '{',
        '<' => '>',
        '>' => '<',
        '«' => '»',
        '»' => '«',
        other => other,
    }
}

/// `FS_MATRIX` of `fpdfview.h`, whose type has no public name.
#[repr(C)]
struct Matrix([f32; 6]);

const IDENTITY: Matrix = Matrix([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]);

/// The matrix that sets `letters` letters of one unit each between the ends of `word`.
fn matrix(word: &UnseenWord, letters: usize, frame: Frame, scale: (f32, f32)) -> Matrix {
    let scaled = |(x, y): (f32, f32)| (x * scale.0, y * scale.1);
    let (from, mut to, size) = (scaled(word.from), scaled(word.to), word.size * scale.1);
    if (to.0 - from.0).hypot(to.1 - from.1) < SHORT {
        to = (from.0 + (LETTER * size * letters as f32).max(SHORT), from.1);
    }
    let (along, across) = (to.0 - from.0, to.1 - from.1);
    let length = along.hypot(across);
    // Upright on its line, as it is seen.
    let above = (from.0 + size * across / length, from.1 - size * along / length);
    let (from, to, above) = (frame.unseen(from), frame.unseen(to), frame.unseen(above));
    let letters = letters as f32;
    Matrix([
        (to.0 - from.0) / letters,
        (to.1 - from.1) / letters,
        above.0 - from.0,
        above.1 - from.1,
        from.0,
        from.1,
    ])
}

/// Puts `layers` over the pages of `document`, of whose content nothing is changed.
pub(crate) fn lay(document: &Document<'_>, layers: &[Layer]) -> Result<(), PdfError> {
    let calls = &*document.library.calls;
    let codes = Codes::of(layers);
    let (map, glyphs) = (codes.to_unicode(), codes.to_glyphs());
    // SAFETY: the document is open; the library copies what is given, whose lengths are as said.
    let font: *mut c_void = unsafe {
        calls.FPDFText_LoadCidType2Font(
            document.handle.cast(),
            BLANK.as_ptr(),
            BLANK.len() as u32,
            &map,
            glyphs.as_ptr(),
            glyphs.len() as u32,
        )
    }
    .cast();
    if font.is_null() {
        return Err(PdfError::Layer);
    }
    let laid = layers.iter().try_for_each(|layer| {
        let open = Open { calls, document, font, codes: &codes };
        open.lay(layer).ok_or(PdfError::Layer)
    });
    // SAFETY: closed once; the document keeps what it uses of it.
    unsafe { calls.FPDFFont_Close(font.cast()) };
    laid
}

/// Common to the words of all pages.
struct Open<'a> {
    calls: &'a dyn PdfiumLibraryBindings,
    document: &'a Document<'a>,
    font: *mut c_void,
    codes: &'a Codes,
}

impl Open<'_> {
    fn load(&self, number: c_int) -> Option<*mut c_void> {
        // SAFETY: the document is open; a wrong number gives null.
        let handle = unsafe { self.calls.FPDF_LoadPage(self.document.handle.cast(), number) };
        (!handle.is_null()).then_some(handle.cast())
    }

    fn lay(&self, layer: &Layer) -> Option<()> {
        let number = c_int::try_from(layer.page).ok()?;
        let page = self.load(number)?;
        // Content that leaves the coordinates or the settings of text changed would move everything after it: this encloses
        // it between q and Q. A loaded page does not see that.
        // SAFETY: the page is open, the matrix as the library expects it, and none of them is used afterwards.
        let is_enclosed = unsafe {
            let matrix: *const Matrix = &IDENTITY;
            let done = self.calls.FPDFPage_TransFormWithClip(page.cast(), matrix.cast(), std::ptr::null());
            self.calls.FPDF_ClosePage(page.cast());
            done != 0
        };
        let page = if is_enclosed { self.load(number)? } else { return None };
        let frame = page::frame(self.document, page);
        let scale = |whole: f32, part: f32| if part > 0.0 { whole / part } else { 1.0 };
        let scale = (scale(frame.width, layer.width), scale(frame.height, layer.height));
        let laid = layer.words.iter().try_for_each(|word| self.lay_word(page, word, frame, scale));
        // SAFETY: the page is open; it is closed once.
        let is_written = unsafe {
            let written = self.calls.FPDFPage_GenerateContent(page.cast());
            self.calls.FPDF_ClosePage(page.cast());
            written != 0
        };
        laid.filter(|()| is_written)
    }

    fn lay_word(&self, page: *mut c_void, word: &UnseenWord, frame: Frame, scale: (f32, f32)) -> Option<()> {
        let codes = self.codes.encode(&word.text);
        let matrix = matrix(word, codes.len(), frame, scale);
        if codes.is_empty() || !matrix.0.iter().all(|number| number.is_finite()) {
            return Some(());
        }
        let calls = self.calls;
        let place: *const Matrix = &matrix;
        // SAFETY: document, font and page are open; lengths are as said. The page takes the object, which it frees if it
        // cannot.
        unsafe {
            let object = calls.FPDFPageObj_CreateTextObj(self.document.handle.cast(), self.font.cast(), 1.0);
            if object.is_null() {
                return None;
            }
            let is_set = calls.FPDFText_SetCharcodes(object, codes.as_ptr(), codes.len()) != 0
                && calls.FPDFTextObj_SetTextRenderMode(object, INVISIBLE) != 0
                && calls.FPDFPageObj_SetMatrix(object, place.cast()) != 0;
            if !is_set {
                calls.FPDFPageObj_Destroy(object);
                return None;
            }
            (calls.FPDFPage_InsertObject(page.cast(), object) != 0).then_some(())
        }
    }
}

/// `FPDF_FILEWRITE` of `fpdf_save.h`, and where the bytes go.
#[repr(C)]
struct Sink {
    version: c_int,
    write: extern "C" fn(*mut Sink, *const c_void, c_ulong) -> c_int,
    bytes: Vec<u8>,
    most: usize,
    is_full: bool,
}

extern "C" fn write(sink: *mut Sink, bytes: *const c_void, length: c_ulong) -> c_int {
    // SAFETY: the library hands back the sink that `save` lends it, and as many bytes as it says.
    let (sink, bytes) = unsafe {
        let Some(sink) = sink.as_mut() else { return 0 };
        let length = usize::try_from(length).unwrap_or(0);
        if bytes.is_null() || length == 0 {
            return 1;
        }
        (sink, std::slice::from_raw_parts(bytes.cast::<u8>(), length))
    };
    sink.is_full |=
        sink.bytes.len() + bytes.len() > sink.most || sink.bytes.try_reserve(bytes.len()).is_err();
    if sink.is_full {
        return 0;
    }
    sink.bytes.extend_from_slice(bytes);
    1
}

/// The document as a file of at most `most` bytes.
pub(crate) fn save(document: &Document<'_>, most: usize) -> Result<Vec<u8>, PdfError> {
    let mut sink = Sink { version: 1, write, bytes: Vec::new(), most, is_full: false };
    let target: *mut Sink = &mut sink;
    // SAFETY: the document is open; the sink starts with the fields that the library expects, and lives through the call.
    let saved =
        unsafe { document.library.calls.FPDF_SaveAsCopy(document.handle.cast(), target.cast(), WHOLE as _) };
    match saved {
        _ if sink.is_full => Err(PdfError::Large),
        0 => Err(PdfError::Layer),
        _ => Ok(sink.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RgbImage, Word,
        testing::{pdf, with_library},
    };

    const MOST: usize = 1 << 20;

    fn word(text: &str, from: (f32, f32), to: (f32, f32)) -> UnseenWord {
        UnseenWord { text: text.to_owned(), from, to, size: 10.0 }
    }

    /// The words of a page with `words` laid over it, and how the page looked before and after.
    fn laid(bytes: Vec<u8>, size: (f32, f32), words: Vec<UnseenWord>) -> (Vec<Word>, [RgbImage; 2]) {
        with_library(move |library| {
            let look = |bytes: Vec<u8>| {
                let document = library.open(bytes).unwrap();
                let page = document.page(0).unwrap();
                (page.words().unwrap(), page.draw_in_colour(600).unwrap())
            };
            let layers = [Layer { page: 0, width: size.0, height: size.1, words }];
            let with_layer = library.lay(bytes.clone(), &layers, MOST).unwrap();
            let ((_, before), (words, after)) = (look(bytes), look(with_layer));
            (words, [before, after])
        })
    }

    fn find<'a>(words: &'a [Word], text: &str) -> &'a Word {
        words.iter().find(|word| word.text == text).unwrap_or_else(|| panic!("no {text} in {words:?}"))
    }

    fn assert_at(words: &[Word], text: &str, [left, top, right, bottom]: [f32; 4]) {
        let area = find(words, text).area;
        let differs = [area.left - left, area.top - top, area.right - right, area.bottom - bottom];
        assert!(differs.iter().all(|difference| difference.abs() < 0.6), "{text}: {area:?}");
    }

    #[test]
    fn words_of_any_script_are_found_where_they_were_put() {
        let texts = ["7", "•", "Grüße", "Überwachung", "Ωмега", "日本語", "שלום", "(12)", "Ελλάς"];
        let words = texts.iter().enumerate().map(|(index, text)| {
            let baseline = 100.0 + 40.0 * index as f32;
            word(text, (100.0, baseline), (200.0, baseline))
        });
        let content = "1 0 0 rg 50 50 200 300 re f BT /F 12 Tf 50 700 Td (own) Tj ET";
        let (found, [before, after]) = laid(pdf(content, "", "", &[]), (600.0, 800.0), words.collect());
        assert_eq!(before, after);
        find(&found, "own");
        for (index, text) in texts.iter().enumerate() {
            let baseline = 100.0 + 40.0 * index as f32;
            assert_at(&found, text, [100.0, baseline - 8.0, 200.0, baseline + 2.0]);
        }
    }

    #[test]
    fn content_that_changes_the_coordinates_moves_no_word() {
        for content in [
            "0.5 0 0 0.5 30 20 cm 5 Tc 50 Tz 5 Ts 0 0 1 rg 10 10 300 300 re f",
            "q 0.5 0 0 0.5 30 20 cm 5 Tc 0 0 1 rg 10 10 300 300 re f",
            "0 0 10 10 re W n 0 0 1 rg 10 10 300 300 re f",
        ] {
            let words = vec![word("place", (100.0, 100.0), (150.0, 100.0))];
            let (found, [before, after]) = laid(pdf(content, "", "", &[]), (600.0, 800.0), words);
            assert_eq!(before, after, "{content}");
            assert_at(&found, "place", [100.0, 92.0, 150.0, 102.0]);
        }
    }

    #[test]
    fn words_are_placed_on_the_page_as_it_is_seen() {
        for turns in 0..4 {
            let file = String::from_utf8(pdf("0 1 0 rg 50 50 100 100 re f", "", "", &[])).unwrap();
            let boxes = format!("/CropBox[100 200 500 700]/Rotate {}", 90 * turns);
            // The table of objects is found again by the library.
            let file = file.replace("/MediaBox[0 0 600 800]", &format!("/MediaBox[0 0 600 800]{boxes}"));
            let size = if turns % 2 == 0 { (400.0, 500.0) } else { (500.0, 400.0) };
            // Half as many units as points.
            let words = vec![word("place", (50.0, 60.0), (75.0, 60.0))];
            let (found, [before, after]) = laid(file.into_bytes(), (size.0 / 2.0, size.1 / 2.0), words);
            assert_eq!(before, after, "{turns}");
            assert_at(&found, "place", [100.0, 104.0, 150.0, 124.0]);
        }
    }

    #[test]
    fn words_stand_on_sloping_lines() {
        let words = vec![word("sloping", (100.0, 100.0), (300.0, 120.0))];
        let (found, _) = laid(pdf("", "", "", &[]), (600.0, 800.0), words);
        let area = find(&found, "sloping").area;
        assert!((area.left - 100.0).abs() < 3.0 && (area.right - 300.0).abs() < 3.0, "{area:?}");
        assert!((88.0..=94.0).contains(&area.top) && (118.0..=124.0).contains(&area.bottom), "{area:?}");
    }

    #[test]
    fn words_stand_on_upright_lines() {
        let words =
            vec![word("upright", (100.0, 300.0), (100.0, 200.0)), word("7", (200.0, 300.0), (200.0, 200.0))];
        let (found, _) = laid(pdf("", "", "", &[]), (600.0, 800.0), words);
        assert_at(&found, "upright", [92.0, 200.0, 102.0, 300.0]);
        assert_at(&found, "7", [192.0, 200.0, 202.0, 300.0]);
    }

    #[test]
    fn a_file_that_grows_too_large_and_a_page_that_is_missing_are_errors() {
        let layer =
            |page| [Layer { page, words: vec![word("x", (1.0, 9.0), (9.0, 9.0))], ..Layer::default() }];
        let (large, missing) = with_library(move |library| {
            let bytes = pdf("", "", "", &[]);
            (library.lay(bytes.clone(), &layer(0), 100), library.lay(bytes, &layer(7), MOST))
        });
        assert!(matches!(large, Err(PdfError::Large)));
        assert!(matches!(missing, Err(PdfError::Layer)));
    }

    #[test]
    fn letters_are_written_as_they_are_seen() {
        let shown = |text: &str| shown_order(text).into_iter().collect::<String>();
        assert_eq!(shown("well-known(1)"), "well-known(1)");
        assert_eq!(shown("אב"), "בא");
        assert_eq!(shown("(אב12)"), "(12בא)");
    }
}
