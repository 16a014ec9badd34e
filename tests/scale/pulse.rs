use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

/// The times of a work's progress, and its longest interruptions. Clones share it.
#[derive(Debug, Clone)]
pub struct Pulse {
    pub name: &'static str,
    beats: Arc<Mutex<Vec<Instant>>>,
}

impl Pulse {
    pub fn new(name: &'static str) -> Self {
        Self { name, beats: Arc::new(Mutex::new(vec![Instant::now()])) }
    }

    /// It went on now.
    pub fn beat(&self) {
        self.beats.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
    }

    /// The longest interruption that ended after `since`, or has not ended, in milliseconds.
    pub fn longest_interruption(&self, since: Instant) -> u128 {
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner).clone();
        beats.push(Instant::now());
        let interruptions = beats.windows(2).filter(|pair| pair[1] >= since);
        interruptions.map(|pair| (pair[1] - pair[0]).as_millis()).max().unwrap_or_default()
    }
}
