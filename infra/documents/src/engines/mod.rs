//! Engines that read files: one per family of types, chosen by the detected type.

mod fields;
mod native;
mod pdf;
mod tika_page;

use std::path::PathBuf;

pub(crate) use native::{NativeEngine, draw_picture, picture_pdf, read_markdown};
pub(crate) use pdf::PdfEngine;
pub(crate) use tika_page::TikaPageEngine;

use crate::{block::Block, failure::Failure, layout::PageContent, ocr::Recognition, write::Metadata};

/// An engine's input.
pub(crate) struct Input {
    pub(crate) bytes: Vec<u8>,
    /// Detected type of the bytes.
    pub(crate) mime_type: &'static str,
    pub(crate) max_pages: usize,
    pub(crate) max_pixels: u32,
}

/// An engine's output.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    pub(crate) body: Body,
    pub(crate) metadata: Metadata,
    pub(crate) warnings: Vec<String>,
    /// The OCR engine, if pages were recognised.
    pub(crate) recognised_by: Option<&'static str>,
}

/// Content before or after its structure is known.
#[derive(Debug)]
pub(crate) enum Body {
    /// Words with places.
    Pages(Vec<PageContent>),
    /// The format says what is what.
    Blocks(Vec<Block>),
}

impl Default for Body {
    fn default() -> Self {
        Self::Blocks(Vec::new())
    }
}

/// Reads files of some types.
pub(crate) trait Engine {
    /// The word for it in requests and answers.
    fn name(&self) -> &'static str;
    /// Which types it reads.
    fn mime_types(&self) -> &'static [&'static str];
    /// Reads a file; pictures of text go to `recognition`.
    fn read(&self, input: Input, recognition: &mut Recognition<'_>) -> Result<Reading, Failure>;
}

/// Where things are that are not part of the program.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Places {
    /// libpdfium.so; none if it was not found.
    pub pdfium: Option<PathBuf>,
    /// Folder of Tesseract's language data; none if it was not found.
    pub tessdata: Option<PathBuf>,
}
