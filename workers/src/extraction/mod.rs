//! Documents become text in the background; what has been kept long enough is removed.

mod attempt;
mod cleanup;
mod runner;
mod running;

pub use cleanup::{ExtractionCleanup, TextSweep};
pub use runner::ExtractionRunner;
