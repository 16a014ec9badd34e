//! Extraction jobs as rows, and queries about them.

pub mod anonymous;
pub mod documents;
mod fold;
pub mod keeping;
mod past;
pub mod queries;
mod rows;
mod search;
mod snippet;

pub use fold::{ExtractionProjection, ExtractionRows};
pub use rows::ExtractionJobRow;
pub use search::Search;
pub use snippet::{START as MARK_START, STOP as MARK_STOP, SnippetPart};
