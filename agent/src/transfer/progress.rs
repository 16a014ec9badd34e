//! Counts the bytes of an attempt and reports them, on the terminal and to the gateway.

use crate::protocol::{Envelope, TransferId};
use indicatif::ProgressBar;
use serde_json::json;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::sync::mpsc;

/// The counter of one attempt.
#[derive(Debug)]
pub struct Progress {
    id: TransferId,
    current: AtomicU64,
    total: AtomicU64,
    reported: Mutex<Instant>,
    every: Duration,
    /// Where messages go that may be lost.
    messages: mpsc::Sender<Envelope>,
    bar: ProgressBar,
}

impl Progress {
    /// Starts at zero; the first report is sent after `every`.
    pub fn new(id: TransferId, every: Duration, messages: mpsc::Sender<Envelope>, bar: ProgressBar) -> Self {
        let (current, total) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { id, current, total, reported: Mutex::new(Instant::now()), every, messages, bar }
    }

    /// Sets how many bytes there are in all.
    pub fn set_total(&self, bytes: u64) {
        self.total.store(bytes, Ordering::Relaxed);
        self.bar.set_length(bytes);
    }

    /// Takes the bar off the terminal.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn shift(&self, from: u64, to: u64) {
        let current = if to >= from {
            self.current.fetch_add(to - from, Ordering::Relaxed).saturating_add(to - from)
        } else {
            self.current.fetch_sub(from - to, Ordering::Relaxed).saturating_sub(from - to)
        };
        self.bar.set_position(current);
        if self.is_due() {
            self.report(current);
        }
    }

    fn is_due(&self) -> bool {
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        let due = reported.elapsed() >= self.every;
        if due {
            *reported = Instant::now();
        }
        due
    }

    fn report(&self, current: u64) {
        let total = self.total.load(Ordering::Relaxed).max(current);
        let progress = if total == 0 { 0.0 } else { current as f64 / total as f64 };
        let data = json!({ "transfer_id": self.id, "progress": progress, "current_bytes": current, "total_bytes": total });
        // Dropped when there is no connection, or a slow one: the next message supersedes it.
        let _ = self.messages.try_send(Envelope::new("transfer_progress", data));
    }
}

/// The share of one file in the counter; a try that starts again takes its bytes back.
#[derive(Debug)]
pub struct FileProgress<'a> {
    progress: &'a Progress,
    counted: AtomicU64,
}

impl<'a> FileProgress<'a> {
    /// A file that has not moved yet.
    pub fn new(progress: &'a Progress) -> Self {
        Self { progress, counted: AtomicU64::new(0) }
    }

    /// The file stands at `bytes` now.
    pub fn set(&self, bytes: u64) {
        let before = self.counted.swap(bytes, Ordering::Relaxed);
        self.progress.shift(before, bytes);
    }

    /// Where the file stands.
    pub fn get(&self) -> u64 {
        self.counted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reported_with_its_share_at_intervals() {
        let (sender, mut receiver) = mpsc::channel(8);
        let progress = Progress::new(TransferId(5), Duration::ZERO, sender, ProgressBar::hidden());
        progress.set_total(100);
        let file = FileProgress::new(&progress);
        file.set(25);
        assert_eq!(
            receiver.try_recv().unwrap().data,
            json!({ "transfer_id": "5", "progress": 0.25, "current_bytes": 25, "total_bytes": 100 })
        );
        file.set(0);
        assert_eq!(receiver.try_recv().unwrap().data["current_bytes"], 0);
    }

    #[test]
    fn a_slow_connection_does_not_stop_the_work() {
        let (sender, _receiver) = mpsc::channel(1);
        let progress = Progress::new(TransferId(5), Duration::ZERO, sender, ProgressBar::hidden());
        let file = FileProgress::new(&progress);
        (0..10).for_each(|bytes| file.set(bytes));
        assert_eq!(file.get(), 9);
    }
}
