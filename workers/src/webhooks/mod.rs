//! Webhooks: events of the log become deliveries, deliveries become requests.
//!
//! Fan-out and delivery are two workers that are joined by data: [`WebhookFanOut`] reads the log and queues, [`WebhookDelivery`]
//! claims what is due, sends and records. Both may die at any point; see there. [`WebhookReplay`] queues past events.

mod delivery;
mod fan_out;
mod notices;
mod queue;
mod replay;
mod request;
mod subscriptions;

pub use delivery::WebhookDelivery;
pub use fan_out::WebhookFanOut;
pub use replay::WebhookReplay;
