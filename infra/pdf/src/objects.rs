use std::ffi::{c_int, c_void};

use pdfium_render::prelude::PdfiumLibraryBindings;

use crate::{Area, Page};

/// Kinds of objects and segments, as in `fpdf_edit.h`.
const TEXT: c_int = 1;
const PATH: c_int = 2;
const IMAGE: c_int = 3;
const LINE_TO: c_int = 0;
const MOVE_TO: c_int = 2;
/// How thick a rule can be, and how short, in points.
const THICK: f32 = 3.0;
const SHORT: f32 = 6.0;
/// Objects, rules and shapes of a page, and segments of a path, at most.
const MAX_OBJECTS: c_int = 100_000;
const MAX_RULES: usize = 20_000;
const MAX_SHAPES: usize = 20_000;
const MAX_SEGMENTS: c_int = 4_096;
/// Objects that are compared, to know whether two pages have the same.
const MAX_COMPARED: c_int = 1_000;

/// A straight line, level or upright, such as tables have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// Whether it is horizontal.
    pub level: bool,
    /// Where it lies: y of a level one, x of an upright one.
    pub at: f32,
    /// Its start on the other axis.
    pub from: f32,
    /// Where it ends.
    pub to: f32,
}

impl Rule {
    /// Where it lies when its page, which is `height` high, is turned clockwise by a quarter.
    #[must_use]
    pub fn turned(self, height: f32) -> Self {
        if self.level {
            Self { level: false, at: height - self.at, ..self }
        } else {
            Self { level: true, at: self.at, from: height - self.to, to: height - self.from }
        }
    }
}

/// A drawn shape that is not a rule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// Where it is.
    pub area: Area,
    /// Whether it has a curve or a slanted line.
    pub is_drawn: bool,
}

/// Objects on a page besides words.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects {
    /// Level and upright lines.
    pub rules: Vec<Rule>,
    /// Shapes that are neither.
    pub shapes: Vec<Shape>,
    /// Where images are.
    pub images: Vec<Area>,
    /// Pixels per inch of the finest image; 0 without any.
    pub finest_dpi: f32,
    /// Whether there is anything to see, be it text drawn as shapes.
    pub is_visible: bool,
}

pub(crate) fn read(page: &Page<'_>) -> Objects {
    let calls = &*page.document.library.calls;
    // SAFETY: the page is open.
    let count = unsafe { calls.FPDFPage_CountObjects(page.handle.cast()) }.min(MAX_OBJECTS);
    let mut found = Objects { is_visible: count > 0, ..Objects::default() };
    for index in 0..count {
        // SAFETY: the object at a number below the count belongs to the open page.
        let (object, kind): (*mut c_void, _) = unsafe {
            let object = calls.FPDFPage_GetObject(page.handle.cast(), index);
            (object.cast(), calls.FPDFPageObj_GetType(object))
        };
        match kind {
            TEXT => {}
            PATH if found.rules.len() < MAX_RULES => path(calls, page, object, &mut found),
            IMAGE => {
                let Some(area) = area_of(calls, page, object) else { continue };
                found.finest_dpi = found.finest_dpi.max(dpi_of(calls, object, &area));
                found.images.push(area);
            }
            _ => {}
        }
    }
    found
}

/// Whether an open page has all objects of another one, in its order, and the same fonts.
pub(crate) fn has_all(calls: &dyn PdfiumLibraryBindings, page: *mut c_void, other: *mut c_void) -> bool {
    // SAFETY: both pages are open, and the numbers below their counts.
    unsafe {
        let count = calls.FPDFPage_CountObjects(other.cast());
        calls.FPDFPage_CountObjects(page.cast()) >= count
            && (0..count.min(MAX_COMPARED)).all(|index| {
                let (one, other) = (
                    calls.FPDFPage_GetObject(page.cast(), index),
                    calls.FPDFPage_GetObject(other.cast(), index),
                );
                let kind = calls.FPDFPageObj_GetType(one);
                kind == calls.FPDFPageObj_GetType(other)
                    && (kind != TEXT || calls.FPDFTextObj_GetFont(one) == calls.FPDFTextObj_GetFont(other))
            })
    }
}

fn area_of(calls: &dyn PdfiumLibraryBindings, page: &Page<'_>, object: *mut c_void) -> Option<Area> {
    let (mut left, mut bottom, mut right, mut top) = (0.0, 0.0, 0.0, 0.0);
    // SAFETY: the object belongs to the open page; the targets live through the call.
    let known = unsafe {
        calls.FPDFPageObj_GetBounds(object.cast(), &mut left, &mut bottom, &mut right, &mut top) != 0
    };
    known.then(|| page.frame.seen_area((left, bottom), (right, top)))
}

/// Pixels per inch of the image at `area`; 0 if that is not known.
fn dpi_of(calls: &dyn PdfiumLibraryBindings, object: *mut c_void, area: &Area) -> f32 {
    let (mut width, mut height) = (0, 0);
    // SAFETY: the image belongs to the open page; the targets live through the call.
    let known = unsafe { calls.FPDFImageObj_GetImagePixelSize(object.cast(), &mut width, &mut height) != 0 };
    let inches = area.width() * area.height() / (72.0 * 72.0);
    // However it is turned.
    if known && inches > 0.0 { (width as f32 * height as f32 / inches).sqrt() } else { 0.0 }
}

/// A thin shape is a rule; of another one that is stroked, each straight side is.
fn path(calls: &dyn PdfiumLibraryBindings, page: &Page<'_>, object: *mut c_void, found: &mut Objects) {
    let Some(area) = area_of(calls, page, object) else { return };
    if area.height() <= THICK || area.width() <= THICK {
        found.rules.extend(rule(area.left, area.top, area.right, area.bottom));
        return;
    }
    let (mut fill, mut stroke) = (0, 0);
    // SAFETY: the path belongs to the open page, here and below.
    unsafe { calls.FPDFPath_GetDrawMode(object.cast(), &mut fill, &mut stroke) };
    if stroke == 0 && fill == 0 {
        return;
    }
    // SAFETY: as above; the matrix, whose type has no public name, is plain floats.
    let (a, b, c, d, e, f, count): (f32, f32, f32, f32, f32, f32, c_int) = unsafe {
        let mut matrix = std::mem::zeroed();
        calls.FPDFPageObj_GetMatrix(object.cast(), &mut matrix);
        let count = calls.FPDFPath_CountSegments(object.cast());
        (matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f, count)
    };
    let (mut begin, mut last) = ((0.0, 0.0), (0.0, 0.0));
    let mut is_drawn = false;
    for index in 0..count.min(MAX_SEGMENTS) {
        let (mut x, mut y) = (0.0, 0.0);
        // SAFETY: as above; a segment at a number below the count is there.
        let (kind, closes) = unsafe {
            let segment = calls.FPDFPath_GetPathSegment(object.cast(), index);
            calls.FPDFPathSegment_GetPoint(segment, &mut x, &mut y);
            (calls.FPDFPathSegment_GetType(segment), calls.FPDFPathSegment_GetClose(segment) != 0)
        };
        let here = page.frame.seen(a * x + c * y + e, b * x + d * y + f);
        match kind {
            MOVE_TO => begin = here,
            LINE_TO => {
                is_drawn |= is_slanted(last, here);
                let side = rule(last.0, last.1, here.0, here.1);
                found.rules.extend(side.filter(|_| stroke != 0));
            }
            _ => is_drawn = true,
        }
        if closes {
            let side = rule(here.0, here.1, begin.0, begin.1);
            found.rules.extend(side.filter(|_| stroke != 0));
        }
        last = here;
        if is_drawn && stroke == 0 {
            break;
        }
    }
    if found.shapes.len() < MAX_SHAPES {
        found.shapes.push(Shape { area, is_drawn });
    }
}

fn is_slanted(from: (f32, f32), to: (f32, f32)) -> bool {
    let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
    width.max(height) > 0.5 && width.min(height) > 0.1 * width.max(height)
}

/// The rule from one place to another, if it is straight, thin and long enough.
fn rule(x: f32, y: f32, to_x: f32, to_y: f32) -> Option<Rule> {
    let (width, height) = ((to_x - x).abs(), (to_y - y).abs());
    if height <= THICK && width >= SHORT && width > 2.0 * height {
        Some(Rule { level: true, at: (y + to_y) / 2.0, from: x.min(to_x), to: x.max(to_x) })
    } else if width <= THICK && height >= SHORT && height > 2.0 * width {
        Some(Rule { level: false, at: (x + to_x) / 2.0, from: y.min(to_y), to: y.max(to_y) })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pdf, words};

    #[test]
    fn only_straight_thin_long_shapes_are_rules() {
        assert!(rule(0.0, 5.0, 100.0, 5.5).is_some_and(|rule| rule.level && rule.to == 100.0));
        assert!(rule(3.0, 50.0, 3.0, 0.0).is_some_and(|rule| !rule.level && rule.from == 0.0));
        assert_eq!(rule(0.0, 0.0, 100.0, 80.0), None);
        assert_eq!(rule(0.0, 0.0, 2.0, 1.0), None);
    }

    #[test]
    fn letters_in_a_form_are_turned_and_scaled_with_it() {
        let styles = |matrix: &str| -> Vec<_> {
            let text = "BT /F 10 Tf 50 20 Td (two words) Tj ET";
            let form = format!(
                "<</Type/XObject/Subtype/Form/BBox[0 0 600 800]/Matrix[{matrix}]/Resources<</Font<</F 4 0 R>>>>/Length {}>>\
                 stream\n{text}\nendstream",
                text.len() + 1
            );
            let words = words(pdf("/X Do", "", "", &[&form]));
            words.into_iter().map(|word| (word.text, word.style.turned, word.style.size.round())).collect()
        };
        let both = |turned, size| [("two".to_owned(), turned, size), ("words".to_owned(), turned, size)];
        assert_eq!(styles("1 0 0 1 0 0"), both(false, 10.0));
        assert_eq!(styles("2 0 0 2 0 0"), both(false, 20.0));
        assert_eq!(styles("0 1 -1 0 300 100"), both(true, 10.0));
    }
}
