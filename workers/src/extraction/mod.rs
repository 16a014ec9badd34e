//! Extracts text from documents in the background, and removes documents and texts after their retention time.

mod attempt;
mod cleanup;
mod runner;
mod running;

pub use cleanup::{ExtractionCleanup, TextSweep};
pub use runner::ExtractionRunner;
