//! The result of an extraction.

use serde::{Deserialize, Serialize};

use crate::{passage::Passage, write::Document};

/// The text of a document and how it was got.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Extraction {
    /// The text in the format that was asked for.
    pub content: String,
    /// Detected type of the bytes.
    pub mime_type: String,
    /// `pdfium`, `native` or `tika`.
    pub extractor_used: String,
    /// The engine that recognised text in images; `None` if none was needed.
    pub ocr_engine_used: Option<String>,
    /// None for what has no pages.
    pub page_count: Option<usize>,
    /// Numbers of the pages that were recognised.
    pub pages_ocred: Vec<usize>,
    /// How sure all of it is, 0 to 1: 1 for text that was in the file.
    pub confidence: f32,
    /// Whether a page took too long to be recognised, so that another time may give more.
    #[serde(default)]
    pub is_partial: bool,
    /// In the order in which they were applied.
    pub processors_applied: Vec<String>,
    /// Notes for the reader.
    pub warnings: Vec<String>,
    /// The text by blocks, in reading order, if it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub passages: Vec<Passage>,
}

/// A PDF whose recognised words can be found, selected and copied.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Searchable {
    /// The file.
    #[serde(skip)]
    pub pdf: Vec<u8>,
    /// How many pages there are.
    pub page_count: usize,
    /// Numbers of those to which words were added.
    pub pages_ocred: Vec<usize>,
    /// Notes for the reader.
    pub warnings: Vec<String>,
}

/// A child's output: written already, or a document that is processed further before it is written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Parsed {
    pub(crate) extraction: Extraction,
    /// With it, the content is not written yet.
    pub(crate) document: Option<Document>,
}
