//! Webhooks: events of the log become deliveries, deliveries become requests.
//!
//! Fan-out and delivery are two workers that are joined by data: [`WebhookFanOut`] reads the log and queues,
//! [`WebhookDelivery`] claims due attempts, sends and records. Both may crash at any point; see there.
//! [`WebhookReplay`] queues past events, [`DeliveryRemoval`] removes the deliveries of deleted subscriptions.

mod delivery;
mod fan_out;
mod notices;
mod queue;
mod receiver;
mod removal;
mod replay;
mod request;
mod signing;
mod slots;
mod subscriptions;

pub use delivery::WebhookDelivery;
pub use fan_out::WebhookFanOut;
pub use receiver::Senders;
pub use removal::DeliveryRemoval;
pub use replay::WebhookReplay;
