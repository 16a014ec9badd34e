use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use super::{retry::RetryPolicy, state::DeliveryBatch};
use crate::{
    automation::AlarmLine,
    kernel::{ContactId, DeliveryId, WebhookId, event_kinds},
};

/// An event on its way to a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDelivery {
    /// Follows from subscription and event.
    pub id: DeliveryId,
    /// Names the event, in all its deliveries.
    pub event_id: Uuid,
    /// Type of the event, as receivers know it.
    pub event_type: String,
    /// The request body, sent byte for byte.
    pub body: String,
}

/// A single delivery to an address without a subscription; the batch itself holds the address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackDelivery {
    /// Stands for the subscription, also when requests at the same time are counted; equal for all addresses of a host.
    pub receiver: WebhookId,
    /// Where it is posted to.
    pub url: String,
    /// Signs it; encrypted for the receiver.
    pub sealed_secret: String,
    /// Whether this machine's own address is refused, because the caller had no login and was not on this machine.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_loopback: bool,
    pub delivery: NewDelivery,
}

/// A message to a contact, whose present address counts at each attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageDelivery {
    pub contact: ContactId,
    pub delivery: NewDelivery,
    /// The alarms that it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alarms: Vec<AlarmLine>,
}

impl MessageDelivery {
    /// The contact in place of a subscription.
    pub fn receiver(&self) -> WebhookId {
        self.contact.as_receiver()
    }
}

/// The receiver's response to one attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptResult {
    /// Of which delivery.
    pub id: DeliveryId,
    /// When it was sent.
    pub started_at: DateTime<Utc>,
    /// Until the answer, or until it was given up.
    pub duration_ms: u32,
    /// The receiver's answer, if any.
    pub status: Option<u16>,
    /// Absent after a success.
    pub error: Option<String>,
    /// The wait that the receiver asked for by `Retry-After`, from the end of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    /// Whether the receiver refused it for good, so that no other attempt follows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum DeliveryBatchCommand {
    /// Take deliveries in; those that it has already are left out.
    Queue {
        webhook: WebhookId,
        /// Which.
        deliveries: Vec<NewDelivery>,
    },
    /// Queue one delivery to an address without a subscription. Without effect if it is queued already.
    QueueCallback(CallbackDelivery),
    /// Queue a message to a contact. Without effect if it is queued already.
    QueueMessage(MessageDelivery),
    /// Claim the due attempts for one worker, all of them or none.
    Begin {
        /// Names the claim; required to record the attempts' results.
        claim: Uuid,
        /// Now.
        at: DateTime<Utc>,
        /// Which deliveries.
        ids: Vec<DeliveryId>,
    },
    /// Record the results of claimed attempts. Attempts without a result were not made, and are released.
    Record {
        /// The claim.
        claim: Uuid,
        results: Vec<AttemptResult>,
        /// When failed attempts are repeated, as the subscription says now.
        #[serde(default)]
        retry: RetryPolicy,
    },
    /// Deliver finished deliveries again, with attempts of their own.
    Redeliver {
        /// Now.
        at: DateTime<Utc>,
        /// Which deliveries.
        ids: Vec<DeliveryId>,
    },
}

/// An attempt that has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// Of which delivery.
    pub id: DeliveryId,
    /// Counts from 1; each redelivery starts another round.
    pub round: u32,
    /// Counts from 1 in each round, without gaps. An attempt whose worker crashed is repeated under the same number.
    pub attempt: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The receiver has it.
    Delivered,
    /// Another attempt.
    Retry {
        /// When.
        due_at: DateTime<Utc>,
        /// Whether the receiver asked for the wait: this attempt does not count, and the next one has its number.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        postponed: bool,
    },
    /// That was the last one.
    DeadLetter,
}

/// An attempt that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Which round.
    pub round: u32,
    /// Which attempt.
    pub attempt: u32,
    #[serde(flatten)]
    pub result: AttemptResult,
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// A delivery that is made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeued {
    /// Which.
    pub id: DeliveryId,
    /// The round that a redelivery starts.
    pub round: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum DeliveryBatchEvent {
    /// Events are on their way.
    DeliveriesQueued {
        webhook: WebhookId,
        /// Which.
        deliveries: Vec<NewDelivery>,
    },
    /// A delivery to an address without a subscription was queued.
    CallbackQueued(CallbackDelivery),
    /// A message to a contact was queued.
    MessageQueued(MessageDelivery),
    /// A worker has claimed attempts.
    AttemptsBegun {
        /// Names the claim.
        claim: Uuid,
        /// When; it lapses [`super::CLAIM_SECONDS`] later.
        at: DateTime<Utc>,
        /// Which.
        attempts: Vec<Begun>,
    },
    /// The claim has ended.
    AttemptsEnded {
        /// Which claim.
        claim: Uuid,
        webhook: WebhookId,
        attempts: Vec<Ended>,
        /// Deliveries whose attempts were not made.
        returned: Vec<DeliveryId>,
    },
    /// Finished deliveries are queued again.
    DeliveriesRequeued {
        /// When.
        at: DateTime<Utc>,
        /// Which.
        deliveries: Vec<Requeued>,
    },
}

event_kinds!(DeliveryBatchEvent, DeliveryBatchEventKind {
    DeliveriesQueued = "deliveries_queued", "1";
    CallbackQueued = "callback_queued", "1";
    MessageQueued = "message_queued", "1";
    AttemptsBegun = "attempts_begun", "1";
    AttemptsEnded = "attempts_ended", "1";
    DeliveriesRequeued = "deliveries_requeued", "1";
});
