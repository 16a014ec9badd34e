use std::ffi::{c_int, c_void};

use crate::{Library, Page, PdfError};

/// `FPDF_ERR_PASSWORD` of `fpdfview.h`.
const ERROR_PASSWORD: u64 = 4;
/// Longest entry of the metadata, in bytes of UTF-16.
const MAX_ENTRY_BYTES: usize = 8192;

/// An open PDF.
pub struct Document<'a> {
    pub(crate) library: &'a Library,
    pub(crate) handle: *mut c_void,
    pages: usize,
    /// PDFium reads from these while the document is open.
    _bytes: Vec<u8>,
}

/// What a PDF says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The title; empty if there is none, like the others.
    pub title: String,
    /// The author.
    pub author: String,
    /// The subject.
    pub subject: String,
}

impl<'a> Document<'a> {
    pub(crate) fn open(library: &'a Library, bytes: Vec<u8>) -> Result<Self, PdfError> {
        // SAFETY: `bytes` lives as long as the document, which is closed before it is dropped, and its heap block does
        // not move with the vector.
        let handle = unsafe { library.calls.FPDF_LoadMemDocument64(&bytes, None) };
        if handle.is_null() {
            // SAFETY: has no preconditions.
            let error = unsafe { library.calls.FPDF_GetLastError() };
            return Err(if error == ERROR_PASSWORD { PdfError::Encrypted } else { PdfError::Damaged });
        }
        // SAFETY: the handle is valid.
        let pages = unsafe { library.calls.FPDF_GetPageCount(handle) };
        Ok(Self { library, handle: handle.cast(), pages: usize::try_from(pages).unwrap_or(0), _bytes: bytes })
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
        // SAFETY: the document is open; a wrong number gives null.
        let handle = unsafe { self.library.calls.FPDF_LoadPage(self.handle.cast(), number) };
        if handle.is_null() {
            Err(PdfError::Page(index + 1))
        } else {
            Ok(Page::new(self, handle.cast(), index))
        }
    }

    /// What the document says of itself.
    pub fn metadata(&self) -> Metadata {
        Metadata { title: self.entry("Title"), author: self.entry("Author"), subject: self.entry("Subject") }
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

impl Drop for Document<'_> {
    fn drop(&mut self) {
        // SAFETY: closed once; pages borrow the document and are gone.
        unsafe { self.library.calls.FPDF_CloseDocument(self.handle.cast()) };
    }
}
