use std::{marker::PhantomData, path::Path};

use pdfium_render::prelude::{Pdfium, PdfiumLibraryBindings};

use crate::{Document, Layer, PdfError, layer};

/// PDFium, loaded into this process.
pub struct Library {
    pub(crate) calls: Box<dyn PdfiumLibraryBindings>,
    /// PDFium keeps global state without locks, so nothing of it may leave its thread.
    stays: PhantomData<*const ()>,
}

impl Library {
    /// Loads the library from the file at `path`. Once in a process.
    ///
    /// # Errors
    /// [`PdfError::Library`], when the file is missing, no library for this machine, or too old.
    pub fn load(path: &Path) -> Result<Self, PdfError> {
        let failed = |error: &dyn std::fmt::Display| PdfError::Library {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let calls = Pdfium::bind_to_library(path).map_err(|error| failed(&error))?;
        // SAFETY: the first call into the library, once.
        unsafe { calls.FPDF_InitLibrary() };
        Ok(Self { calls, stays: PhantomData })
    }

    /// Opens the PDF in `bytes`.
    ///
    /// # Errors
    /// [`PdfError::Damaged`] and [`PdfError::Encrypted`].
    pub fn open(&self, bytes: Vec<u8>) -> Result<Document<'_>, PdfError> {
        Document::open(self, bytes)
    }

    /// The PDF in `bytes` with `layers` of unseen words over its pages, of whose content nothing is changed; at most `most` bytes.
    ///
    /// # Errors
    /// [`PdfError::Damaged`], [`PdfError::Encrypted`], [`PdfError::Layer`] and [`PdfError::Large`].
    pub fn lay(&self, bytes: Vec<u8>, layers: &[Layer], most: usize) -> Result<Vec<u8>, PdfError> {
        let document = self.open(bytes)?;
        layer::lay(&document, layers)?;
        layer::save(&document, most)
    }
}
