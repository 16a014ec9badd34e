//! Lets rules judge the values that come in, and writes the log entries of those that fire.

pub(crate) mod device;
mod evaluation;
mod firings;
mod log_action;
mod shards;
mod watches;

pub use evaluation::RuleEvaluation;
pub use log_action::RuleLog;
