//! The content of a PDF's pages, read by PDFium: words with their places and fonts, rules, images, form fields,
//! comments; and rendered pages. Recognised words can be put over pages as text that is found but not seen.
//!
//! This crate says what is there, not what it means: lines, columns, tables and headings are found by its users. Places
//! are in points, from the left upper corner of the page as a reader sees it, whatever its rotation.
//!
//! PDFium is C++ that reads hostile files: call it in a process that may crash. It is not thread-safe, so a
//! [`Library`] stays on the thread that loaded it, and a process loads it once.
//!
//! ```no_run
//! # fn main() -> Result<(), signalbox_pdf::PdfError> {
//! let library = signalbox_pdf::Library::load(std::path::Path::new("libpdfium.so"))?;
//! let document = library.open(std::fs::read("letter.pdf").unwrap_or_default())?;
//! let page = document.page(0)?;
//! println!("{} words", page.words()?.len());
//! # Ok(())
//! # }
//! ```

mod annotations;
mod boxes;
mod codes;
mod damage;
pub mod direction;
mod document;
mod doubles;
mod error;
mod frame;
mod gaps;
mod info;
mod layer;
mod leaders;
mod library;
mod look;
mod mend;
mod objects;
mod open;
mod page;
pub mod scripts;
#[cfg(test)]
mod testing;
mod units;
mod words;

pub use annotations::{Annotations, Field, FieldValue};
pub use codes::UNREADABLE;
pub use document::{Document, Metadata};
pub use error::PdfError;
pub use layer::{Layer, UnseenWord};
pub use library::Library;
pub use objects::{Objects, Rule, Shape};
pub use page::{GrayImage, Page, RgbImage};
pub use words::{Area, MAX_WORDS, Style, Word};
