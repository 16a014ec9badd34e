use std::ffi::{c_int, c_void};

use crate::{Annotations, Document, Objects, PdfError, Word, annotations, frame::Frame, objects, words};

/// `FPDFBitmap_Gray` of `fpdfview.h`: one byte per pixel.
const GRAY: c_int = 1;
/// `FPDFBitmap_BGR`: three bytes per pixel.
const BGR: c_int = 2;
const WHITE: u32 = 0xFFFF_FFFF;
/// `FPDF_ANNOT | FPDF_GRAYSCALE`: with annotations, in shades of gray.
const IN_GRAY: c_int = 0x01 | 0x08;
/// `FPDF_ANNOT | FPDF_REVERSE_BYTE_ORDER`: with annotations, red first.
const IN_COLOUR: c_int = 0x01 | 0x10;
/// `FLAT_NORMALDISPLAY` and `FLATTEN_SUCCESS` of `fpdf_flatten.h`.
const AS_SHOWN: c_int = 0;
const FLATTENED: c_int = 1;
/// Pixels of a side: programs that look at pictures count with 16 bits.
const MAX_SIDE: f64 = 32_000.0;

/// A page of an open PDF.
pub struct Page<'a> {
    pub(crate) document: &'a Document<'a>,
    pub(crate) handle: *mut c_void,
    index: usize,
    pub(crate) frame: Frame,
    annotations: Annotations,
}

/// A picture in shades of gray, one byte per pixel, row by row without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrayImage {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// From 0, black, to 255, white.
    pub pixels: Vec<u8>,
    /// Pixels per inch.
    pub dpi: u32,
}

/// A picture in colours, three bytes per pixel, row by row without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    /// Pixels of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green and blue.
    pub pixels: Vec<u8>,
}

impl<'a> Page<'a> {
    /// The page at `number`, from 0, with its annotations made part of its content.
    pub(crate) fn open(document: &'a Document<'a>, number: c_int) -> Option<Self> {
        let calls = &document.library.calls;
        // SAFETY: the document is open; a wrong number gives null.
        let mut handle: *mut c_void = unsafe { calls.FPDF_LoadPage(document.handle.cast(), number) }.cast();
        if handle.is_null() {
            return None;
        }
        let frame = frame(document, handle);
        let annotations = annotations::read(&**calls, handle, frame, &document.form);
        // The content of annotations is read like the rest of the page.
        if annotations.are_visible {
            handle = flattened(document, handle, number);
        }
        (!handle.is_null()).then(|| Self {
            document,
            handle,
            index: number.max(0) as usize,
            frame,
            annotations,
        })
    }

    /// Width as it is seen, in points.
    pub fn width(&self) -> f32 {
        self.frame.width
    }

    /// Height as it is seen, in points.
    pub fn height(&self) -> f32 {
        self.frame.height
    }

    /// The words, in the order in which the file writes them; one more than [`MAX_WORDS`](crate::MAX_WORDS) if some are left
    /// out.
    ///
    /// # Errors
    /// [`PdfError::Page`].
    pub fn words(&self) -> Result<Vec<Word>, PdfError> {
        words::read(self).ok_or(PdfError::Page(self.index + 1))
    }

    /// Values of form fields, and comments. Those that the page shows are also among its words.
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// Rules and images, and whether there is anything to see at all.
    pub fn objects(&self) -> Objects {
        objects::read(self)
    }

    /// The page as a picture at `dpi`, or at less if it would have more than `max_pixels`, or more than others can count.
    ///
    /// # Errors
    /// [`PdfError::Draw`].
    pub fn draw(&self, dpi: u32, max_pixels: u32) -> Result<GrayImage, PdfError> {
        let failed = || PdfError::Draw(self.index + 1);
        let (width, height) = (self.frame.width, self.frame.height);
        let dpi = fitting(dpi, (width, height), max_pixels).ok_or_else(failed)?;
        let pixels = |points: f32| ((f64::from(points) * f64::from(dpi) / 72.0).round() as i32).max(1);
        let (width, height) = (pixels(width), pixels(height));
        let pixels = self.bitmap((width, height), GRAY, IN_GRAY).ok_or_else(failed)?;
        Ok(GrayImage { width: width as u32, height: height as u32, pixels, dpi })
    }

    /// The page in colours, `width` pixels wide, or less if it would be more than three times as high.
    ///
    /// # Errors
    /// [`PdfError::Draw`].
    pub fn draw_in_colour(&self, width: u32) -> Result<RgbImage, PdfError> {
        let failed = || PdfError::Draw(self.index + 1);
        let shape = f64::from(self.frame.height) / f64::from(self.frame.width);
        if !(shape.is_finite() && shape > 0.0) {
            return Err(failed());
        }
        let width = f64::from(width).min(3.0 * f64::from(width) / shape);
        let (width, height) = (width.round().max(1.0), (width * shape).round().max(1.0));
        let pixels = self.bitmap((width as c_int, height as c_int), BGR, IN_COLOUR).ok_or_else(failed)?;
        Ok(RgbImage { width: width as u32, height: height as u32, pixels })
    }

    /// The page in a bitmap of `format`, row by row without gaps.
    fn bitmap(&self, (width, height): (c_int, c_int), format: c_int, flags: c_int) -> Option<Vec<u8>> {
        let calls = &self.document.library.calls;
        let row_bytes = width as usize * if format == BGR { 3 } else { 1 };
        // SAFETY: a bitmap of its own, checked, drawn within its size, read before it is destroyed.
        unsafe {
            let bitmap = calls.FPDFBitmap_CreateEx(width, height, format, std::ptr::null_mut(), 0);
            if bitmap.is_null() {
                return None;
            }
            calls.FPDFBitmap_FillRect(bitmap, 0, 0, width, height, WHITE.into());
            calls.FPDF_RenderPageBitmap(bitmap, self.handle.cast(), 0, 0, width, height, 0, flags);
            let stride = (calls.FPDFBitmap_GetStride(bitmap).max(0) as usize).max(row_bytes);
            let rows = calls.FPDFBitmap_GetBuffer_as_slice(bitmap).chunks(stride);
            let mut pixels = Vec::with_capacity(row_bytes * height as usize);
            rows.take(height as usize).for_each(|row| pixels.extend_from_slice(&row[..row_bytes]));
            calls.FPDFBitmap_Destroy(bitmap);
            Some(pixels)
        }
    }
}

/// The page that is open as `handle` with its annotations made part of its content; null if it cannot be opened again. PDFium takes fonts
/// and pictures that a page has in common with others from it; such a page stays as the file has it.
fn flattened(document: &Document<'_>, handle: *mut c_void, number: c_int) -> *mut c_void {
    let calls = &*document.library.calls;
    // SAFETY: the page is open; each one is closed once, and not used afterwards.
    unsafe {
        if calls.FPDFPage_Flatten(handle.cast(), AS_SHOWN) != FLATTENED {
            return handle;
        }
        // A loaded page does not show it yet.
        let flat: *mut c_void = calls.FPDF_LoadPage(document.handle.cast(), number).cast();
        let is_whole = !flat.is_null() && objects::has_all(calls, flat, handle);
        calls.FPDF_ClosePage(handle.cast());
        if is_whole || flat.is_null() {
            return flat;
        }
        let unchanged = document.unchanged();
        if unchanged.is_null() {
            return flat;
        }
        calls.FPDF_ClosePage(flat.cast());
        calls.FPDF_LoadPage(unchanged.cast(), number).cast()
    }
}

/// Pixels per inch, at most `dpi`, at which a page fits. A whole number, because places are computed from it.
fn fitting(dpi: u32, (width, height): (f32, f32), max_pixels: u32) -> Option<u32> {
    let inches = |points: f32| f64::from(points) / 72.0;
    let (area, longest) = (inches(width) * inches(height), inches(width.max(height)));
    if !(area.is_finite() && area > 0.0) {
        return None;
    }
    let most = (f64::from(max_pixels) / area).sqrt().min(MAX_SIDE / longest);
    // At one pixel per inch nothing can be read.
    (most >= 1.0).then(|| dpi.min(most as u32))
}

pub(crate) fn frame(document: &Document<'_>, page: *mut c_void) -> Frame {
    let calls = &document.library.calls;
    // SAFETY: the page is open; the type of the rectangle, which has no public name, is plain floats.
    unsafe {
        let mut rectangle = std::mem::zeroed();
        calls.FPDF_GetPageBoundingBox(page.cast(), &mut rectangle);
        let (mut left, mut bottom, mut right, mut top) = (0.0, 0.0, 0.0, 0.0);
        let has_box =
            calls.FPDFPage_GetMediaBox(page.cast(), &mut left, &mut bottom, &mut right, &mut top) != 0;
        // Boxes of a page that have nothing in common leave none of it.
        if rectangle.left >= rectangle.right && has_box && left < right && bottom < top {
            return Frame { left, bottom, width: right - left, height: top - bottom, turns: 0 };
        }
        Frame {
            left: rectangle.left,
            bottom: rectangle.bottom,
            width: calls.FPDF_GetPageWidthF(page.cast()),
            height: calls.FPDF_GetPageHeightF(page.cast()),
            turns: calls.FPDFPage_GetRotation(page.cast()).rem_euclid(4),
        }
    }
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        // SAFETY: closed once, before its document.
        unsafe { self.document.library.calls.FPDF_ClosePage(self.handle.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pdf, with_library};

    #[test]
    fn large_pages_are_drawn_with_fewer_pixels_per_inch() {
        let sheet = (595.0, 842.0);
        assert_eq!(fitting(300, sheet, 100_000_000), Some(300));
        assert_eq!(fitting(300, sheet, 2_175_000), Some(150));
        // 200 inches each way, and a strip of that length.
        assert_eq!(fitting(300, (14_400.0, 14_400.0), 10_000_000), Some(15));
        assert_eq!(fitting(300, (14_400.0, 72.0), 100_000_000), Some(160));
        assert_eq!(fitting(300, (1e7, 1e7), 100_000_000), None);
        assert_eq!(fitting(300, (f32::NAN, 100.0), 100_000_000), None);
        assert_eq!(fitting(300, (0.0, 100.0), 100_000_000), None);
    }

    #[test]
    fn page_whose_fonts_are_those_of_all_pages_keeps_them_beside_fields() {
        // The codes of the font are not those of letters.
        let font = "/Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica/Encoding<</Differences[1/w/o/r/d/s]>>>>>>";
        let field = "<</Type/Annot/Subtype/Widget/FT/Tx/T(a)/V(typed)/Rect[100 600 200 620]/AP<</N 7 0 R>>>>";
        let shown = "<</Type/XObject/Subtype/Form/BBox[0 0 100 20]/Length 1>>stream\n\nendstream";
        let file = pdf("BT /F 12 Tf 50 700 Td <0102030405> Tj ET", "6 0 R", "6 0 R", &[field, shown]);
        let file = String::from_utf8(file).unwrap();
        let own = "/Resources<</Font<</F 4 0 R>>/XObject<</X 6 0 R>>>>";
        let file = file.replace(own, "").replace("/Count 1>>", &format!("/Count 1/Resources<<{font}>>>>"));
        let (texts, fields) = with_library(move |library| {
            let document = library.open(file.into_bytes()).unwrap();
            let page = document.page(0).unwrap();
            let texts: Vec<String> = page.words().unwrap().into_iter().map(|word| word.text).collect();
            (texts, page.annotations().fields.len())
        });
        assert_eq!((texts, fields), (vec!["words".to_owned()], 1));
    }

    #[test]
    fn page_whose_boxes_have_nothing_in_common_is_as_large_as_its_sheet() {
        let file = String::from_utf8(pdf("BT /F 12 Tf 50 700 Td (words) Tj ET", "", "", &[])).unwrap();
        let file = file.replace("/MediaBox[0 0 600 800]", "/MediaBox[0 0 600 800]/CropBox[700 900 800 999]");
        let (width, left) = with_library(move |library| {
            let document = library.open(file.into_bytes()).unwrap();
            let page = document.page(0).unwrap();
            (page.width(), page.words().unwrap()[0].area.left)
        });
        assert_eq!((width, left.round()), (600.0, 50.0));
    }

    #[test]
    fn places_are_as_a_reader_sees_them() {
        let frame = |turns, width, height| Frame { left: 10.0, bottom: 20.0, width, height, turns };
        // The left lower corner of the file, plus (1, 2).
        assert_eq!(frame(0, 100.0, 200.0).seen(11.0, 22.0), (1.0, 198.0));
        assert_eq!(frame(1, 200.0, 100.0).seen(11.0, 22.0), (2.0, 1.0));
        assert_eq!(frame(2, 100.0, 200.0).seen(11.0, 22.0), (99.0, 2.0));
        assert_eq!(frame(3, 200.0, 100.0).seen(11.0, 22.0), (198.0, 99.0));
    }
}
