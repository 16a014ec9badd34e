//! Jobs: who works on one, how far it is, how it ends, and what of it is kept.

mod decide;
mod events;
mod state;
#[cfg(test)]
mod tests;

pub use events::{
    Callback, ExtractionFailure, ExtractionJobCommand, ExtractionJobEvent, ExtractionOptions,
    ExtractionResult, NewExtractionJob,
};
pub use state::{ExtractionJob, LEASE_SECONDS, MAX_ATTEMPTS};
