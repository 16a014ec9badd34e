//! The event store on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod append_only;
mod chain;
mod claims;
mod conflict;
mod failure;
mod golden;
mod idempotency;
mod log;
mod made;
mod order;
mod plans;
mod samples;
mod schema;
mod search;
mod snapshot;
