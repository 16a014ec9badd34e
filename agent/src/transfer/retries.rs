//! Limits how often one file is retried within an attempt.

use super::{Interrupt, TransferError};
use crate::{backoff::Backoff, timing::Timing};

/// Counts tries without progress; any progress resets the count.
pub struct Retries {
    backoff: Backoff,
    tries: u32,
    best: u64,
}

impl Retries {
    pub fn new(timing: &Timing) -> Self {
        Self {
            backoff: Backoff::new(timing.retry_base, timing.retry_max),
            tries: timing.retry_tries,
            best: 0,
        }
    }

    /// Waits before the next try; returns `error` after too many. `reached` is the number of bytes transferred so far.
    pub async fn wait(
        &mut self,
        error: TransferError,
        reached: u64,
        interrupt: &Interrupt,
    ) -> Result<(), TransferError> {
        if reached > self.best {
            self.best = reached;
            self.backoff.reset();
        }
        if self.backoff.failures() >= self.tries {
            return Err(error);
        }
        let delay = self.backoff.next_delay();
        tracing::debug!(%error, delay_ms = delay.as_millis() as u64, "retrying a file");
        Ok(interrupt.guard(tokio::time::sleep(delay)).await?)
    }
}
