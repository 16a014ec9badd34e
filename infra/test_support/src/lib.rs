//! Real servers and bounded waits for tests.
//!
//! Every test process has one private PostgreSQL, and every test a fresh database in it, copied from one that was
//! migrated once; every test has a nats-server of its own. Nothing outlives the process, however it ends.
//!
//! ```no_run
//! # async fn a_test() {
//! use signalbox_test_support::{TestServers, eventually, seconds};
//!
//! let servers = TestServers::start().await;
//! servers.nats.kill().await;
//! servers.nats.restart().await;
//! eventually(seconds(10), async || servers.bus.is_connected()).await;
//! servers.finish().await;
//! # }
//! ```
//!
//! It is only for tests: every failure is a panic that fails the test.

#![expect(clippy::expect_used, reason = "a test's helpers fail the test")]

mod eventually;
mod home;
mod leftovers;
mod metadata;
mod nats;
mod postgres;
mod reads;
mod servers;

pub use eventually::{eventually, eventually_some, seconds};
pub use metadata::{by, metadata};
pub use nats::TestNats;
pub use postgres::fresh_database;
pub use reads::rows_read;
pub use servers::TestServers;
