//! How often one file is tried again within an attempt.

use super::{Interrupt, TransferError};
use crate::{backoff::Backoff, timing::Timing};

/// Counts tries that brought nothing; any progress starts the count again.
pub struct Patience {
    backoff: Backoff,
    tries: u32,
    best: u64,
}

impl Patience {
    /// As patient as `timing` says.
    pub fn new(timing: &Timing) -> Self {
        Self {
            backoff: Backoff::new(timing.retry_base, timing.retry_max),
            tries: timing.retry_tries,
            best: 0,
        }
    }

    /// Waits before the next try; gives `error` back when there were enough. `reached` is how far the file is.
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
        let pause = self.backoff.next_pause();
        tracing::debug!(%error, pause_ms = pause.as_millis() as u64, "a file is tried again");
        Ok(interrupt.guard(tokio::time::sleep(pause)).await?)
    }
}
