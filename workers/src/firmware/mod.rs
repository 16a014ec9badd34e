//! Firmware updates are fetched, verified and brought into force, and rolled back; what is deleted loses its files.

mod attempt;
mod download;
mod runner;

pub use runner::FirmwareRunner;
