//! Keeps the index over the log in which people search.
//!
//! Reads the log after the end of the index, writes the index. It lags behind the log by a second; searches read the
//! rest of the log instead. If it crashes, the next one continues from the end of the index.

use std::time::Duration;

use signalbox_event_store::extend_index;

use crate::{Context, Worker, WorkerError};

/// The indexer.
#[derive(Debug)]
pub struct Indexer;

impl Worker for Indexer {
    const NAME: &'static str = "indexer";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        Ok(extend_index(&context.pool).await?)
    }
}
