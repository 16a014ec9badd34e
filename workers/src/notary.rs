//! Keeps the hash chain beside the log.
//!
//! Reads the log after the end of the chain and writes the hashes of what it finds. No append waits for it; it lags behind the log
//! by a second, or by what it has not worked off. If it dies, the next one goes on from the end of the chain. Should two
//! ever do the same, the chain takes only one of them.

use std::time::Duration;

use signalbox_event_store::{ChainError, extend_chain};

use crate::{Context, Worker, WorkerError};

/// Events of one step.
const BATCH: i64 = 1000;

/// The notary.
#[derive(Debug)]
pub struct Notary;

impl Worker for Notary {
    const NAME: &'static str = "notary";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        match extend_chain(&context.pool, context.clock.now(), BATCH).await {
            Ok(count) => Ok(count as i64 == BATCH),
            Err(ChainError::Database(error)) => Err(error.into()),
            Err(gap @ ChainError::Gap { .. }) => {
                // It will not close by itself, and nobody is helped by a hash over it.
                tracing::error!(error = %gap, "the log was tampered with");
                Ok(false)
            }
        }
    }
}
