//! Extraction jobs as rows, and what is asked about them.

mod fold;
mod past;
pub mod queries;
mod rows;

pub use fold::{ExtractionProjection, ExtractionRows};
pub use rows::ExtractionJobRow;
