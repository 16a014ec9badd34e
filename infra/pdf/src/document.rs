use std::{
    cell::{Cell, OnceCell},
    ffi::{c_int, c_void},
    time::Duration,
};

use crate::{Library, Page, PdfError, damage, info, mend};

/// `FPDF_ERR_PASSWORD` of `fpdfview.h`.
const ERROR_PASSWORD: u64 = 4;
/// `FORMTYPE_NONE` of `fpdf_formfill.h`.
const NO_FORM: c_int = 0;
/// Longest entry of the metadata, in bytes of UTF-16.
const MAX_ENTRY_BYTES: usize = 8192;

/// An open PDF.
pub struct Document<'a> {
    pub(crate) library: &'a Library,
    pub(crate) handle: *mut c_void,
    pages: usize,
    pub(crate) form: Form<'a>,
    /// The document as the file has it, opened when a page is needed that was not changed.
    unchanged: OnceCell<*mut c_void>,
    /// PDFium reads from these while the document is open.
    bytes: Vec<u8>,
}

/// The metadata of a PDF.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The title; empty if absent, like the other fields.
    pub title: String,
    /// The author.
    pub author: String,
    /// The subject.
    pub subject: String,
}

impl<'a> Document<'a> {
    pub(crate) fn open(library: &'a Library, mut bytes: Vec<u8>) -> Result<Self, PdfError> {
        let mut handle = load(library, &bytes);
        if handle.is_null() {
            // SAFETY: has no preconditions.
            if unsafe { library.calls.FPDF_GetLastError() } == ERROR_PASSWORD {
                return Err(PdfError::Encrypted);
            }
            bytes = mend::with_trailer(&bytes).ok_or(PdfError::Damaged)?;
            handle = load(library, &bytes);
            if handle.is_null() {
                return Err(PdfError::Damaged);
            }
        }
        // SAFETY: the handle is valid.
        let pages = unsafe { library.calls.FPDF_GetPageCount(handle.cast()) };
        let form = Form { library, document: handle, opened: OnceCell::new(), choosing: Cell::default() };
        let pages = usize::try_from(pages).unwrap_or(0);
        Ok(Self { library, handle, pages, form, unchanged: OnceCell::new(), bytes })
    }

    /// The document as the file has it, without any change that was made to pages; null if it is not opened twice.
    pub(crate) fn unchanged(&self) -> *mut c_void {
        *self.unchanged.get_or_init(|| load(self.library, &self.bytes))
    }

    /// How many pages there are.
    pub fn page_count(&self) -> usize {
        self.pages
    }

    /// The page at `index`, from 0.
    ///
    /// # Errors
    /// [`PdfError::Page`].
    pub fn page(&self, index: usize) -> Result<Page<'_>, PdfError> {
        let number = c_int::try_from(index).map_err(|_| PdfError::Page(index + 1))?;
        Page::open(self, number).ok_or(PdfError::Page(index + 1))
    }

    /// Whether the file has compressed streams that are damaged or cut off: PDFium shows a page of such a stream as an empty one.
    /// Reads the whole file.
    pub fn has_damaged_streams(&self) -> bool {
        damage::has_damaged_stream(&self.bytes)
    }

    /// The document's metadata.
    pub fn metadata(&self) -> Metadata {
        let found = Metadata {
            title: self.entry("Title"),
            author: self.entry("Author"),
            subject: self.entry("Subject"),
        };
        // PDFium forgets where they are when it mends a damaged table of objects.
        if found == Metadata::default() { info::find(&self.bytes) } else { found }
    }

    fn entry(&self, name: &str) -> String {
        let mut buffer = vec![0_u8; MAX_ENTRY_BYTES];
        // SAFETY: the buffer is as long as said; nothing is written when the entry is longer.
        let length = unsafe {
            let target = buffer.as_mut_ptr().cast();
            self.library.calls.FPDF_GetMetaText(self.handle.cast(), name, target, MAX_ENTRY_BYTES as u64)
        };
        let length = usize::try_from(length).unwrap_or(0).min(MAX_ENTRY_BYTES);
        let units: Vec<u16> = buffer[..length]
            .chunks_exact(2)
            .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
            .take_while(|unit| *unit != 0)
            .collect();
        String::from_utf16_lossy(&units).trim().to_owned()
    }
}

/// The document in `bytes`, which has to be closed before they are dropped; null if it is not one. The block of a vector does not move
/// with it.
fn load(library: &Library, bytes: &[u8]) -> *mut c_void {
    // SAFETY: the caller keeps `bytes` as long as the document.
    unsafe { library.calls.FPDF_LoadMemDocument64(bytes, None) }.cast()
}

/// The form of a document, opened when a page first asks for a value.
pub(crate) struct Form<'a> {
    library: &'a Library,
    document: *mut c_void,
    opened: OnceCell<Opened>,
    /// For how long choices of its fields have been looked at.
    pub(crate) choosing: Cell<Duration>,
}

/// Memory that PDFium uses for as long as the form is open: versions of its structure have at most 45 pointers.
type Callbacks = Box<[usize; 64]>;

struct Opened {
    handle: *mut c_void,
    _callbacks: Callbacks,
}

impl Form<'_> {
    /// None if the document has no form.
    pub(crate) fn handle(&self) -> Option<*mut c_void> {
        let handle = self.opened.get_or_init(|| self.open()).handle;
        (!handle.is_null()).then_some(handle)
    }

    fn open(&self) -> Opened {
        let calls = &self.library.calls;
        let mut callbacks: Callbacks = Box::new([0; 64]);
        let mut handle: *mut c_void = std::ptr::null_mut();
        // SAFETY: the document is open. Without a form nothing is opened.
        if unsafe { calls.FPDF_GetFormType(self.document.cast()) } == NO_FORM {
            return Opened { handle, _callbacks: callbacks };
        }
        // Builds with and without XFA want different versions.
        for version in [2, 1] {
            let info: *mut c_void = callbacks.as_mut_ptr().cast();
            // SAFETY: the structure starts with its version; null callbacks are not called. It lives, unmoved, as
            // long as the form.
            unsafe {
                info.cast::<c_int>().write(version);
                handle = calls.FPDFDOC_InitFormFillEnvironment(self.document.cast(), info.cast()).cast();
            }
            if !handle.is_null() {
                break;
            }
        }
        Opened { handle, _callbacks: callbacks }
    }

    fn close(&mut self) {
        if let Some(opened) = self.opened.take().filter(|opened| !opened.handle.is_null()) {
            // SAFETY: closed once, before its document.
            unsafe { self.library.calls.FPDFDOC_ExitFormFillEnvironment(opened.handle.cast()) };
        }
    }
}

impl Drop for Document<'_> {
    fn drop(&mut self) {
        self.form.close();
        // SAFETY: closed once; pages borrow the document and are gone.
        unsafe {
            self.library.calls.FPDF_CloseDocument(self.handle.cast());
            if let Some(unchanged) = self.unchanged.take().filter(|unchanged| !unchanged.is_null()) {
                self.library.calls.FPDF_CloseDocument(unchanged.cast());
            }
        }
    }
}
