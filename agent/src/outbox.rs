//! Reports that the gateway has not confirmed yet, so that a lost connection or a restarted gateway loses none.
//!
//! Writes: the work (`push`). Reads: the current connection (`after`, `confirm`). If the agent crashes, the reports
//! are lost; the gateway then sees from `active_transfers` that no agent works on them.

use crate::protocol::{Report, TransferId};
use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

const CAPACITY: usize = 4096;

/// A bounded queue of reports, each with a number that grows.
#[derive(Debug, Default)]
pub struct Outbox {
    state: Mutex<State>,
    added: Notify,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<(u64, Report)>,
    last: u64,
}

impl Outbox {
    /// Adds a report; waits while the box is full.
    pub async fn push(&self, report: Report) {
        loop {
            let freed = self.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if self.try_push(&report) {
                return;
            }
            freed.await;
        }
    }

    /// Adds a report unless it waits already; `false` when the box is full.
    pub fn try_push(&self, report: &Report) -> bool {
        let mut state = self.lock();
        if state.waiting.iter().any(|(_, other)| other == report) {
            return true;
        }
        if state.waiting.len() >= CAPACITY {
            return false;
        }
        state.last += 1;
        let number = state.last;
        state.waiting.push_back((number, report.clone()));
        drop(state);
        self.added.notify_waiters();
        true
    }

    /// The first report whose number is greater than `number`.
    pub fn after(&self, number: u64) -> Option<(u64, Report)> {
        self.lock().waiting.iter().find(|(waiting, _)| *waiting > number).cloned()
    }

    /// Waits until there is a report whose number is greater than `number`.
    pub async fn next_after(&self, number: u64) -> (u64, Report) {
        loop {
            let added = self.added.notified();
            tokio::pin!(added);
            // Registers before the check, so that a report added in between is not missed.
            added.as_mut().enable();
            if let Some(found) = self.after(number) {
                return found;
            }
            added.await;
        }
    }

    /// The transfers whose reports wait.
    pub fn transfers(&self) -> Vec<TransferId> {
        self.lock().waiting.iter().map(|(_, report)| report.id).collect()
    }

    /// Drops all reports up to `number`: the gateway has them.
    pub fn confirm(&self, number: u64) {
        self.lock().waiting.retain(|(waiting, _)| *waiting > number);
        self.freed.notify_waiters();
    }

    /// Drops the reports of a transfer that was cancelled.
    pub fn forget(&self, id: TransferId) {
        self.lock().waiting.retain(|(_, report)| report.id != id);
        self.freed.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Direction, Outcome};

    fn report(id: u64) -> Report {
        let outcome = Outcome::Failed { error: "x".into(), retryable: true };
        Report { id: TransferId(id), direction: Direction::Upload, attempt: Some(1), outcome }
    }

    #[tokio::test]
    async fn a_report_stays_until_it_is_confirmed() {
        let outbox = Outbox::default();
        outbox.push(report(1)).await;
        outbox.push(report(2)).await;
        let (number, first) = outbox.next_after(0).await;
        assert_eq!(first, report(1));
        assert_eq!(outbox.after(0).unwrap().1, report(1));
        outbox.confirm(number);
        assert_eq!(outbox.after(0).unwrap().1, report(2));
    }

    #[tokio::test]
    async fn the_same_report_waits_once_and_a_cancelled_transfer_has_none() {
        let outbox = Outbox::default();
        outbox.push(report(1)).await;
        outbox.push(report(1)).await;
        assert_eq!(outbox.transfers(), [TransferId(1)]);
        outbox.forget(TransferId(1));
        assert!(outbox.after(0).is_none());
    }

    #[tokio::test]
    async fn the_box_is_bounded() {
        let outbox = Outbox::default();
        for id in 0..CAPACITY as u64 {
            assert!(outbox.try_push(&report(id)));
        }
        assert!(!outbox.try_push(&report(CAPACITY as u64)));
        outbox.confirm(1);
        assert!(outbox.try_push(&report(CAPACITY as u64)));
    }
}
