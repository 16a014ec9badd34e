//! Rules as tables.

mod fold;
pub mod rules;

pub use fold::{AutomationProjection, AutomationRows};
pub use rules::RuleRow;
