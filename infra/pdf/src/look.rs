//! The look of fonts.

use std::ffi::{c_int, c_void};

use pdfium_render::prelude::PdfiumLibraryBindings;

/// Bits of the font flags, ISO 32000-1 table 123.
const FIXED_PITCH: c_int = 1;
const ITALIC: c_int = 1 << 6;
const FORCE_BOLD: c_int = 1 << 18;
/// A weight from which on a font is bold, as in CSS.
const BOLD: c_int = 600;

/// Parts of the names of fonts whose letters are of one width. Those of TeX do not say so otherwise.
const TYPEWRITERS: &[&str] =
    &["mono", "courier", "consol", "typewriter", "cursor", "nimbusmon", "cmtt", "xtt", "xbtt"];

/// Whether the letters of an open page's font are bold, italic, and of equal width.
pub(crate) fn of(calls: &dyn PdfiumLibraryBindings, font: *mut c_void) -> (bool, bool, bool) {
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
        flags & FIXED_PITCH != 0 || says(TYPEWRITERS),
    )
}
