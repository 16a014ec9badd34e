//! Rules, alarms with their notifications, and webhooks: work that values and events cause.

mod alarms;
mod notifications;
mod readings;
mod rules;
mod webhooks;

pub use self::{
    alarms::Alarms,
    notifications::Notifications,
    readings::Readings,
    rules::{RuleDisabling, RuleEvaluation, RuleLog},
    webhooks::{DeliveryRemoval, Senders, WebhookDelivery, WebhookFanOut, WebhookReplay},
};
