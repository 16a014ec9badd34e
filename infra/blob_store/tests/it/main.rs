//! The store on a real disk, one file per behaviour.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a failed expectation is a failed test")]

mod delete;
mod overlap;
mod read;
mod resume;
mod support;
mod upload;
