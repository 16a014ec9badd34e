//! Keeps the hash chain beside the log.
//!
//! Reads the log after the end of the chain and writes the events' hashes. No append waits for it; it lags behind the
//! log by a second, or by its backlog. If it crashes, the next one continues from the end of the chain. Should two
//! ever run at once, the chain accepts only one of them.

use std::time::Duration;

use signalbox_event_store::extend_chain;

use crate::{Context, Worker, WorkerError};

/// Events of one step.
const BATCH: i64 = 1000;

#[derive(Debug)]
pub struct HashChainWriter;

impl Worker for HashChainWriter {
    // Leases of older versions have this name.
    const NAME: &'static str = "notary";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let chained = extend_chain(&context.pool, context.clock.now(), BATCH).await;
        // A gap does not close by itself, and a hash across it would prove nothing: it is reported for as long as it
        // lasts.
        chained.map(|count| count as i64 == BATCH).map_err(WorkerError::Chain)
    }
}
