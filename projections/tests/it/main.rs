//! The read models on a real PostgreSQL, folded from the events of commands.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod coverage;
mod history;
mod history_extraction;
mod history_firmware;
mod history_plugins;
mod history_webhooks;
mod identity;
mod keeping;
mod kinds;
mod lease;
mod monitoring;
mod past;
mod poison;
mod queries;
mod rebuild;
mod removed;
mod runner;
#[path = "../../../infra/event_store/tests/it/samples.rs"]
mod samples;
mod series;
mod snapshots;
mod sweeps;
mod transfer;
mod withdrawals;
mod world;
