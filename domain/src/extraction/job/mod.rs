//! Extraction jobs: claims, progress, results, and retention.

mod decide;
mod events;
mod state;
mod status;
#[cfg(test)]
mod tests;

pub use events::{
    Callback, ExtractionFailure, ExtractionJobCommand, ExtractionJobEvent, ExtractionJobEventKind,
    ExtractionOptions, ExtractionResult, NewExtractionJob, bounded_warnings,
};
pub use state::{ExtractionJob, LEASE_SECONDS, MAX_ATTEMPTS};
pub use status::ExtractionStatus;
