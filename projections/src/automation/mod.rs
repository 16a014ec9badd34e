//! Rules, reported readings, webhooks and deliveries as tables.

pub mod deliveries;
pub mod due;
mod fold;
pub mod outgoing;
mod past;
pub mod readings;
pub mod rules;
mod spells;
pub mod webhooks;

pub use fold::{AutomationProjection, AutomationRows};
pub use past::{past_delivery, past_webhook};
pub use rules::RuleRow;
pub use webhooks::WebhookRow;
