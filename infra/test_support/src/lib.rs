//! Real servers and bounded waits for tests.
//!
//! Every test process has one private PostgreSQL, and every test a fresh database in it, copied from one that was
//! migrated once; every test has a nats-server of its own, and those that want one an S3 server, shared or of its own.
//! Nothing outlives the process, however it ends.
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
//! With `SIGNALBOX_TEST_SETUP=scaled`, every test has a cluster of three nats-servers, and the PostgreSQL a streaming
//! replica; with `scaled-killed`, one nats-server after another and the replica are killed and restarted all the
//! time; so is the second process of a service, if the test starts one. A failing test reports which servers were
//! killed under it; `--nocapture` shows all.
//!
//! It is only for tests: every failure is a panic that fails the test.

#![expect(clippy::expect_used, reason = "a test's helpers fail the test")]

mod administration;
mod eventually;
mod home;
mod leftovers;
mod metadata;
mod nats;
mod port;
mod postgres;
mod program;
mod reads;
mod removal;
mod replicated;
mod s3;
mod servers;
mod setup;
mod silent_link;

pub use eventually::{eventually, eventually_some, seconds};
pub use metadata::{by, metadata};
pub use nats::TestNats;
pub use port::free_address;
pub use postgres::fresh_database;
pub use program::write_program;
pub use reads::rows_read;
pub use replicated::TestReplicatedPostgres;
pub use s3::S3Server;
pub use servers::TestServers;
pub use setup::{Setup, time_limit};
pub use silent_link::SilentLink;
