//! Rules, reported readings, webhooks and deliveries as tables.

pub mod deliveries;
pub mod due;
mod fold;
pub mod outgoing;
pub mod readings;
pub mod rules;
pub mod webhooks;

pub use fold::{AutomationProjection, AutomationRows};
pub use rules::RuleRow;
pub use webhooks::WebhookRow;
