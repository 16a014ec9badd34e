//! The ways to write a document, all from the same blocks.

mod chunks;
mod docling;
mod json;
pub(crate) mod markdown;
mod paged;
mod plaintext;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{block::Block, layout::LinedPage, options::OutputFormat, passage::Passage};

/// Properties of a document besides its text: title, author and the like.
pub type Metadata = BTreeMap<String, Value>;

/// Properties of a page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PageNote {
    /// From 1.
    pub number: usize,
    /// In points.
    pub width: f32,
    /// In points.
    pub height: f32,
    /// Degrees clockwise by which the page was turned to be read: 0, 90, 180 or 270. Width, height and places are those after it.
    #[serde(default)]
    pub rotation: u32,
    /// How sure recognition was, 0 to 1; none for a page that was not recognised.
    pub ocr_confidence: Option<f32>,
    /// Lines that stand above the text of every page.
    pub header: Vec<String>,
    /// Lines that stand below the text of every page.
    pub footer: Vec<String>,
}

/// All that is written.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Document {
    /// In reading order.
    pub blocks: Vec<Block>,
    /// Title, author and the like.
    pub metadata: Metadata,
    /// None for what has no pages.
    pub pages: Vec<PageNote>,
    /// The text in a format that shows lines and words, which blocks do not have; empty in other formats.
    pub paged: String,
    /// The most words of a chunk, if JSON shall have chunks.
    #[serde(default)]
    pub chunk_words: Option<usize>,
}

/// Writes pages in `format`, if it shows lines and words.
pub(crate) fn of_pages(format: OutputFormat) -> Option<fn(&[LinedPage]) -> String> {
    match format {
        OutputFormat::Hocr => Some(paged::hocr),
        OutputFormat::Alto => Some(paged::alto),
        _ => None,
    }
}

impl Document {
    /// The text of every block that has some.
    pub(crate) fn passages(&self) -> Vec<Passage> {
        let passages = self.blocks.iter().map(|block| Passage {
            page: block.page,
            bbox: block.places.first().map(|place| place.bbox),
            text: block.text(),
        });
        passages.filter(|passage| !passage.text.trim().is_empty()).collect()
    }

    /// The document as text in `format`.
    pub fn write(&self, format: OutputFormat, front_matter: bool) -> String {
        match format {
            OutputFormat::Markdown => {
                let head = if front_matter { markdown::front_matter(&self.metadata) } else { String::new() };
                head + &markdown::blocks(&self.blocks)
            }
            OutputFormat::Plaintext => plaintext::blocks(&self.blocks),
            OutputFormat::Json => json::document(self),
            OutputFormat::Docling => docling::document(self),
            OutputFormat::Hocr | OutputFormat::Alto => self.paged.clone(),
        }
    }
}
