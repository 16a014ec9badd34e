//! Evaluates rules on arriving values, and writes the log entries of firings.

pub(crate) mod device;
mod evaluation;
mod firings;
mod log_action;
mod shards;
mod watches;

pub use evaluation::RuleEvaluation;
pub use log_action::RuleLog;
