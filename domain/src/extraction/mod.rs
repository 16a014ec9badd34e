//! Documents that become text in the background.

mod job;

pub use job::{
    Callback, ExtractionFailure, ExtractionJob, ExtractionJobCommand, ExtractionJobEvent,
    ExtractionJobEventKind, ExtractionOptions, ExtractionResult, ExtractionStatus, LEASE_SECONDS,
    MAX_ATTEMPTS, NewExtractionJob, bounded_warnings,
};
