//! Elements of a page beside its content: values of form fields, and annotations.

use std::{
    cell::Cell,
    ffi::{c_int, c_ulong, c_void},
    time::{Duration, Instant},
};

use pdfium_render::prelude::PdfiumLibraryBindings;

use crate::{Area, document::Form, frame::Frame};

/// Kinds of annotations, as in `fpdf_annot.h`.
const LINK: c_int = 2;
const POPUP: c_int = 16;
const WIDGET: c_int = 20;
/// Kinds of form fields, as in `fpdf_formfill.h`.
const CHECK_BOX: c_int = 2;
const RADIO_BUTTON: c_int = 3;
const COMBO_BOX: c_int = 4;
const LIST_BOX: c_int = 5;
const TEXT_FIELD: c_int = 6;
/// Flags of annotations and text fields, ISO 32000-1 tables 165 and 228.
const HIDDEN: c_int = 1 << 1;
const NO_VIEW: c_int = 1 << 5;
const PASSWORD: c_int = 1 << 13;
/// Annotations of a page, and letters of one of them and of all, at most. Many may have one long text in common, which takes a small file.
const MAX_ANNOTATIONS: c_int = 20_000;
const MAX_UNITS: usize = 1 << 20;
const MAX_UNITS_OF_PAGE: usize = 1 << 22;
/// Options of the fields of a page that are looked at, and how long that may take for all pages: for each of them, PDFium compares all
/// values that are chosen.
const MAX_OPTIONS: c_int = 100_000;
const CHOOSING: Duration = Duration::from_secs(2);

/// A field of a form, and where it is.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Where it is.
    pub area: Area,
    /// The field's value.
    pub value: FieldValue,
}

/// The value of a form field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// Typed, or chosen from a list.
    Text(String),
    /// Ticked or not.
    Ticked(bool),
}

/// The visible text of a page's annotations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Annotations {
    /// Values of the form's fields.
    pub fields: Vec<Field>,
    /// Comments, in the order of the file.
    pub notes: Vec<String>,
    /// Whether some of them may be drawn.
    pub(crate) are_visible: bool,
}

/// Reads the annotations of an open page; links say nothing by themselves.
pub(crate) fn read(
    calls: &dyn PdfiumLibraryBindings,
    page: *mut c_void,
    frame: Frame,
    form: &Form<'_>,
) -> Annotations {
    let (mut found, mut rest) =
        (Annotations::default(), Rest { units: MAX_UNITS_OF_PAGE, options: MAX_OPTIONS });
    for index in others_than_links(calls, page) {
        // SAFETY: the page is open; the annotation is closed below.
        let handle: *mut c_void = unsafe { calls.FPDFPage_GetAnnot(page.cast(), index) }.cast();
        if handle.is_null() {
            continue;
        }
        let annotation = Annotation { calls, handle };
        annotation.read_into(&mut found, frame, form, &mut rest);
        // SAFETY: closed once.
        unsafe { calls.FPDFPage_CloseAnnot(handle.cast()) };
    }
    found
}

/// The numbers of annotations that are no links. Books have thousands of links, and each annotation that is opened costs
/// as much as a line of text.
fn others_than_links(calls: &dyn PdfiumLibraryBindings, page: *mut c_void) -> Vec<c_int> {
    // SAFETY: the page is open.
    let count = unsafe { calls.FPDFPage_GetAnnotCount(page.cast()) }.min(MAX_ANNOTATIONS);
    let (mut others, mut next) = (Vec::new(), 0);
    while next < count {
        let begun = next;
        let mut link = std::ptr::null_mut();
        // SAFETY: as above; the targets live through the call, which sets `next` behind the link that it finds.
        if unsafe { calls.FPDFLink_Enumerate(page.cast(), &mut next, &mut link) } == 0 || next <= begun {
            others.extend(begun..count);
            break;
        }
        others.extend(begun..next - 1);
    }
    others
}

/// How much of a page may still be read.
struct Rest {
    units: usize,
    options: c_int,
}

/// An open annotation.
struct Annotation<'a> {
    calls: &'a dyn PdfiumLibraryBindings,
    handle: *mut c_void,
}

impl Annotation<'_> {
    fn read_into(&self, found: &mut Annotations, frame: Frame, form: &Form<'_>, rest: &mut Rest) {
        // SAFETY: the annotation is open.
        let (kind, flags) = unsafe {
            (
                self.calls.FPDFAnnot_GetSubtype(self.handle.cast()) as c_int,
                self.calls.FPDFAnnot_GetFlags(self.handle.cast()),
            )
        };
        if matches!(kind, LINK | POPUP) || flags & (HIDDEN | NO_VIEW) != 0 {
            return;
        }
        found.are_visible = true;
        if kind == WIDGET {
            found.fields.extend(self.field(frame, form, rest));
            return;
        }
        let contents = self.string("Contents", rest);
        if !contents.is_empty() {
            found.notes.push(contents);
        }
    }

    /// A string or name of the annotation; empty if absent.
    fn string(&self, key: &str, rest: &mut Rest) -> String {
        text(rest, |buffer, bytes| {
            // SAFETY: the annotation is open; the buffer is as long as said.
            unsafe { self.calls.FPDFAnnot_GetStringValue(self.handle.cast(), key, buffer.cast(), bytes) }
        })
    }

    fn field(&self, frame: Frame, of: &Form<'_>, rest: &mut Rest) -> Option<Field> {
        let form = of.handle()?;
        if rest.units == 0 {
            return None;
        }
        // SAFETY: form and annotation are open; the rectangle, whose type has no public name, is plain floats.
        let (kind, flags, area) = unsafe {
            let mut rectangle = std::mem::zeroed();
            self.calls.FPDFAnnot_GetRect(self.handle.cast(), &mut rectangle);
            let corners = ((rectangle.left, rectangle.top), (rectangle.right, rectangle.bottom));
            (
                self.calls.FPDFAnnot_GetFormFieldType(form.cast(), self.handle.cast()),
                self.calls.FPDFAnnot_GetFormFieldFlags(form.cast(), self.handle.cast()),
                frame.seen_area(corners.0, corners.1),
            )
        };
        let value = match kind {
            CHECK_BOX | RADIO_BUTTON => {
                // The appearance state shown now; a box without an appearance has only the value.
                let shown = self.string("AS", rest);
                let is_box = kind == CHECK_BOX;
                let state = if shown.is_empty() && is_box { self.string("V", rest) } else { shown };
                FieldValue::Ticked(!matches!(state.as_str(), "" | "Off"))
            }
            TEXT_FIELD if flags & PASSWORD != 0 => return None,
            COMBO_BOX | LIST_BOX => {
                let chosen = self.chosen(form, &of.choosing, rest);
                FieldValue::Text(if chosen.is_empty() { self.value(form, rest) } else { chosen.join(", ") })
            }
            TEXT_FIELD => FieldValue::Text(self.value(form, rest)),
            _ => return None,
        };
        Some(Field { area, value })
    }

    fn value(&self, form: *mut c_void, rest: &mut Rest) -> String {
        text(rest, |buffer, bytes| {
            // SAFETY: form and annotation are open; the buffer is as long as said.
            unsafe {
                self.calls.FPDFAnnot_GetFormFieldValue(form.cast(), self.handle.cast(), buffer.cast(), bytes)
            }
        })
    }

    /// The labels of the options that are chosen, as a reader shows them: the value is what a form sends.
    fn chosen(&self, form: *mut c_void, choosing: &Cell<Duration>, rest: &mut Rest) -> Vec<String> {
        // SAFETY: form and annotation are open.
        let count = unsafe { self.calls.FPDFAnnot_GetOptionCount(form.cast(), self.handle.cast()) };
        let count = count.clamp(0, rest.options);
        rest.options -= count;
        let (mut labels, begun, before) = (Vec::new(), Instant::now(), choosing.get());
        for index in 0..count {
            choosing.set(before + begun.elapsed());
            if choosing.get() >= CHOOSING {
                break;
            }
            // SAFETY: as above; an option that is not there is not chosen.
            let is_chosen =
                unsafe { self.calls.FPDFAnnot_IsOptionSelected(form.cast(), self.handle.cast(), index) != 0 };
            if is_chosen {
                labels.push(self.label(form, index, rest));
            }
        }
        labels.retain(|label| !label.is_empty());
        labels
    }

    fn label(&self, form: *mut c_void, option: c_int, rest: &mut Rest) -> String {
        text(rest, |buffer, bytes| {
            // SAFETY: form and annotation are open; the buffer is as long as said.
            unsafe {
                self.calls.FPDFAnnot_GetOptionLabel(
                    form.cast(),
                    self.handle.cast(),
                    option,
                    buffer.cast(),
                    bytes,
                )
            }
        })
    }
}

/// The text that `call` writes into a buffer of UTF-16, given its length in bytes; `call` gives the length that it needs. Empty
/// if it is longer than what may be read, which counts, too: the length is not known without it.
fn text(rest: &mut Rest, call: impl Fn(*mut u16, c_ulong) -> c_ulong) -> String {
    if rest.units == 0 {
        return String::new();
    }
    let bytes = usize::try_from(call(std::ptr::null_mut(), 0)).unwrap_or(0);
    let count = bytes.div_ceil(2);
    let is_read = bytes > 2 && count <= MAX_UNITS.min(rest.units);
    rest.units = rest.units.saturating_sub(count);
    if !is_read {
        return String::new();
    }
    let mut units = vec![0_u16; count];
    call(units.as_mut_ptr(), bytes as c_ulong);
    let end = units.iter().position(|unit| *unit == 0).unwrap_or(units.len());
    String::from_utf16_lossy(&units[..end]).replace("\r\n", "\n").replace('\r', "\n").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{pdf, with_library};

    const APPEARANCE: &str = "<</Type/XObject/Subtype/Form/BBox[0 0 100 20]/Resources<</Font<</F 4 0 R>>>>/Length 33>>stream\n\
        BT /F 10 Tf 2 6 Td (shown) Tj ET \nendstream";

    fn read(
        annotations: &'static str,
        fields: &'static str,
        more: &'static [&'static str],
    ) -> (Annotations, Vec<String>) {
        with_library(move |library| {
            let document = library.open(pdf("", annotations, fields, more)).unwrap();
            let page = document.page(0).unwrap();
            let words = page.words().unwrap().into_iter().map(|word| word.text).collect();
            (page.annotations().clone(), words)
        })
    }

    #[test]
    fn values_of_fields_are_read_whether_shown_or_not() {
        let (found, words) = read(
            "6 0 R 7 0 R 9 0 R 10 0 R",
            "6 0 R 8 0 R 9 0 R 10 0 R",
            &[
                "<</Type/Annot/Subtype/Widget/FT/Tx/T(a)/V(shown)/Rect[100 700 200 720]/AP<</N 11 0 R>>>>",
                "<</Type/Annot/Subtype/Widget/Parent 8 0 R/Rect[100 600 200 620]>>",
                "<</FT/Tx/T(b)/V(of the parent)/Kids[7 0 R]>>",
                "<</Type/Annot/Subtype/Widget/FT/Btn/T(c)/V/Yes/AS/Yes/Rect[100 500 110 510]/AP<</N<</Yes 11 0 R>>>>>>",
                "<</Type/Annot/Subtype/Widget/FT/Tx/Ff 8192/T(d)/V(secret)/Rect[100 400 200 420]>>",
                APPEARANCE,
            ],
        );
        let values: Vec<FieldValue> = found.fields.iter().map(|field| field.value.clone()).collect();
        let text = |text: &str| FieldValue::Text(text.to_owned());
        assert_eq!(values, [text("shown"), text("of the parent"), FieldValue::Ticked(true)]);
        assert_eq!(found.fields[0].area, Area { left: 100.0, top: 80.0, right: 200.0, bottom: 100.0 });
        assert!(words.contains(&"shown".to_owned()), "{words:?}");
    }

    #[test]
    fn choices_are_read_by_the_labels_that_a_reader_shows() {
        let (found, _) = read(
            "6 0 R 7 0 R 8 0 R",
            "6 0 R 7 0 R 8 0 R",
            &[
                "<</Type/Annot/Subtype/Widget/FT/Ch/Ff 131072/T(a)/V(fr)/Opt[[(de)(Germany)][(fr)(France)]]/Rect[100 700 200 720]>>",
                "<</Type/Annot/Subtype/Widget/FT/Ch/Ff 2097152/T(b)/V[(x)(z)]/Opt[(x)(y)(z)]/Rect[100 600 200 620]>>",
                "<</Type/Annot/Subtype/Widget/FT/Ch/Ff 393216/T(c)/V(typed)/Opt[(x)(y)]/Rect[100 500 200 520]>>",
            ],
        );
        let values: Vec<FieldValue> = found.fields.into_iter().map(|field| field.value).collect();
        assert_eq!(values, ["France", "x, z", "typed"].map(|text| FieldValue::Text(text.to_owned())));
    }

    #[test]
    fn a_long_text_that_many_fields_have_in_common_is_not_read_for_each_of_them() {
        let text = format!("({})", "letters ".repeat(75_000));
        let field = "<</Type/Annot/Subtype/Widget/FT/Tx/T(a)/V 6 0 R/Rect[100 700 200 720]>>";
        let numbers: String = (7..15).map(|number| format!("{number} 0 R ")).collect();
        let file = pdf("", &numbers, &numbers, &[&[text.as_str()][..], &[field; 8]].concat());
        let lengths = with_library(move |library| {
            let document = library.open(file).unwrap();
            let page = document.page(0).unwrap();
            let length = |field: &Field| match &field.value {
                FieldValue::Text(text) => text.len(),
                FieldValue::Ticked(_) => 0,
            };
            page.annotations().fields.iter().map(length).collect::<Vec<_>>()
        });
        let whole = lengths.iter().filter(|length| **length == 599_999).count();
        assert_eq!((lengths.len(), whole, lengths.iter().sum::<usize>()), (7, 6, 6 * 599_999));
    }

    /// PDFium compares each option with each value.
    #[test]
    fn choices_of_many_options_are_looked_at_for_seconds_at_most() {
        let many = |letter: char, count: usize| -> String {
            let all: String = (0..count).map(|number| format!("({letter}{number})")).collect();
            format!("[{all}]")
        };
        let (options, values) = (many('o', 10_000), many('v', 20_000));
        let field =
            "<</Type/Annot/Subtype/Widget/FT/Ch/Ff 2097152/T(a)/V 7 0 R/Opt 6 0 R/Rect[100 700 200 720]>>";
        let numbers: String = (8..18).map(|number| format!("{number} 0 R ")).collect();
        let more = [&[options.as_str(), values.as_str()][..], &[field; 10]].concat();
        let file = pdf("", &numbers, &numbers, &more);
        let begun = Instant::now();
        let count = with_library(move |library| {
            let document = library.open(file).unwrap();
            document.page(0).unwrap().annotations().fields.len()
        });
        assert_eq!(count, 10);
        assert!(begun.elapsed() < 6 * CHOOSING, "{:?}", begun.elapsed());
    }

    #[test]
    fn comments_are_read_and_hidden_ones_are_not() {
        let (found, _) = read(
            "6 0 R 7 0 R 8 0 R 9 0 R",
            "",
            &[
                "<</Type/Annot/Subtype/Text/Contents(please check)/Rect[100 700 120 720]/Popup 8 0 R>>",
                "<</Type/Annot/Subtype/Highlight/F 2/Contents(hidden)/Rect[100 600 120 620]>>",
                "<</Type/Annot/Subtype/Popup/Contents(please check)/Rect[200 700 220 720]>>",
                "<</Type/Annot/Subtype/Link/Contents(a link)/Rect[100 500 120 520]>>",
            ],
        );
        assert_eq!((found.notes, found.fields), (vec!["please check".to_owned()], vec![]));
    }
}
