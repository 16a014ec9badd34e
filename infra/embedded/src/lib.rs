//! A private PostgreSQL and a private NATS server, run as children of this process.
//!
//! This lets `signalbox up` and the tests work on a machine without a database or a broker: each server gets a
//! folder, a port on 127.0.0.1 and a random password, and runs no longer than its parent.
//!
//! It is not a supervisor (a server that crashes later is not restarted, and its clients see that), and it does not
//! know the data stored in them: databases, schemas and streams belong to the callers.
//!
//! ```no_run
//! # async fn example() -> Result<(), signalbox_embedded::EmbeddedError> {
//! use signalbox_embedded::{Nats, NatsOptions, Postgres, PostgresOptions};
//!
//! let postgres = Postgres::start(PostgresOptions::new("data/postgres")).await?;
//! let nats = Nats::start(NatsOptions::new("data/nats")).await?;
//! println!("{} {}", postgres.url("postgres"), nats.url());
//! nats.stop().await;
//! postgres.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! For tests and measurements of larger installations, a NATS server may be one of a [`NatsCluster`], and a PostgreSQL the
//! replica of another ([`PostgresOptions::primary`]).
//!
//! How the children end, whatever happens to the parent:
//!
//! | The parent | The children |
//! |---|---|
//! | calls `stop` | receive stronger and stronger signals, each after a time limit |
//! | drops the handle | are shut down at once |
//! | gets Ctrl-C from the terminal | notice nothing: they have process groups of their own |
//! | is killed (SIGKILL) | get a signal from the kernel; a next start waits for those that still linger |
//!
//! Linux only: it relies on `/proc` and on `setpriv` of util-linux.

mod account;
mod child;
mod error;
mod folder;
mod keeper;
mod leftovers;
mod locate;
mod log;
mod nats;
mod nats_cluster;
mod ports;
mod postgres;

pub use error::EmbeddedError;
pub use nats::{ClusterPlace, Nats, NatsOptions};
pub use nats_cluster::NatsCluster;
pub use ports::free_address;
pub use postgres::{Postgres, PostgresOptions, Primary};
