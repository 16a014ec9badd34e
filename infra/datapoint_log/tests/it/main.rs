//! The datapoint log on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod append;
mod days;
mod plans;
mod recent;
