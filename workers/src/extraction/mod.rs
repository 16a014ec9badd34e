//! Extracts text from documents in the background, keeps the index of kept texts, and removes documents and texts after
//! their retention time.

mod attempt;
mod cleanup;
mod index;
mod runner;
mod running;
mod sections;
mod store;

pub use cleanup::{ExtractionCleanup, TextSweep};
pub use index::DocumentIndex;
pub use runner::ExtractionRunner;
pub use store::Store;
