//! Rules, reported readings, webhooks and deliveries as tables.

pub mod alarm_judges;
pub mod alarms;
pub mod composing;
pub mod contacts;
pub mod deliveries;
pub mod due;
mod failure_streaks;
mod fold;
pub mod messages;
pub mod notices;
pub mod outgoing;
mod past;
pub mod readings;
pub(crate) mod removed;
pub mod rule_shards;
pub mod rules;
pub mod webhooks;

pub use alarms::AlarmRow;
pub use contacts::ContactRow;
pub use fold::{AutomationProjection, AutomationRows};
pub use past::{past_delivery, past_webhook};
pub use removed::remove_deliveries;
pub use rules::RuleRow;
pub use webhooks::WebhookRow;
