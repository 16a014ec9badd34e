//! Fetches, verifies, applies and rolls back firmware updates; removes the files of deleted ones.

mod attempt;
mod download;
mod held;
mod runner;

pub use runner::FirmwareRunner;
