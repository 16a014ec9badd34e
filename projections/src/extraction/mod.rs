//! Extraction jobs as rows, and queries about them.

pub mod anonymous;
mod fold;
mod past;
pub mod queries;
mod rows;

pub use fold::{ExtractionProjection, ExtractionRows};
pub use rows::ExtractionJobRow;
