//! Evaluates rules on arriving values, writes the log entries of firings, and disables rules of deleted channels.

pub(crate) mod device;
mod disabling;
mod evaluation;
mod firings;
mod log_action;
mod shards;
mod watches;

pub use disabling::RuleDisabling;
pub use evaluation::RuleEvaluation;
pub use log_action::RuleLog;
