//! The bus on a real nats-server, which is killed and robbed of its streams.

#![expect(clippy::unwrap_used, reason = "a test's helpers fail the test")]

mod cluster;
mod commands;
mod connection;
mod events;
mod mailbox;
mod wakeups;
