use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// How often the abusers met which outcome. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct Tally(Arc<Mutex<BTreeMap<String, u64>>>);

impl Tally {
    pub fn count(&self, outcome: impl ToString) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(outcome.to_string()).or_default() += 1;
    }

    /// How often `outcome` was met.
    pub fn of(&self, outcome: &str) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(outcome).copied().unwrap_or_default()
    }

    /// Prints the counts, and what they are in a second of `elapsed`.
    pub fn print(&self, elapsed: Duration) {
        println!("  {:<34} {:>10} {:>10}", "abusers", "count", "a second");
        for (outcome, count) in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            println!("  {outcome:<34} {count:>10} {:>10.1}", *count as f64 / elapsed.as_secs_f64());
        }
    }
}
