//! Stops a piece of work from outside, with a reason.

use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// Why work stops before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The gateway cancelled the transfer: remove everything, report nothing.
    Cancelled,
    /// A later attempt takes over; it continues from the temporary files.
    Superseded,
    /// The agent stops; its next run continues from the temporary files.
    Stopping,
    /// Another file of the same transfer failed.
    Sibling,
}

/// A switch that many parts of one piece of work watch.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    token: CancellationToken,
    reason: Arc<OnceLock<Reason>>,
}

impl Interrupt {
    /// Stops the work; the first reason counts.
    pub fn set(&self, reason: Reason) {
        if self.reason.set(reason).is_ok() {
            self.token.cancel();
        }
    }

    /// A switch for a group of files, which stops when this one does, or alone by `stop_group`.
    pub fn group(&self) -> Self {
        Self { token: self.token.child_token(), reason: self.reason.clone() }
    }

    /// Stops a group; the rest of the work continues and reports the group's error.
    pub fn stop_group(&self) {
        self.token.cancel();
    }

    /// Ends with an error once the switch is set.
    pub fn check(&self) -> Result<(), Reason> {
        if self.token.is_cancelled() { Err(self.reason()) } else { Ok(()) }
    }

    /// Runs a wait that ends at once when the switch is set.
    pub async fn guard<T>(&self, wait: impl Future<Output = T>) -> Result<T, Reason> {
        tokio::select! {
            biased;
            () = self.token.cancelled() => Err(self.reason()),
            value = wait => Ok(value),
        }
    }

    fn reason(&self) -> Reason {
        self.reason.get().copied().unwrap_or(Reason::Sibling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_group_stops_with_its_work_and_alone() {
        let work = Interrupt::default();
        let (first, second) = (work.group(), work.group());
        first.stop_group();
        assert_eq!(first.check(), Err(Reason::Sibling));
        assert_eq!((work.check(), second.check()), (Ok(()), Ok(())));
        work.set(Reason::Cancelled);
        work.set(Reason::Stopping);
        assert_eq!(second.guard(std::future::pending::<()>()).await, Err(Reason::Cancelled));
    }
}
