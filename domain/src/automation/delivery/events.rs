use chrono::{DateTime, Utc};
use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use super::state::Consignment;
use crate::kernel::{DeliveryId, WebhookId};

/// An event on its way to a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewDelivery {
    /// Follows from subscription and event.
    pub id: DeliveryId,
    /// Names the event, in all its deliveries.
    pub event_id: Uuid,
    /// Type of the event, as receivers know it.
    pub event_type: String,
    /// What is posted, byte for byte.
    pub body: String,
}

/// What somebody is told once, who has no subscription: the consignment knows the address itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallbackDelivery {
    /// Stands for the subscription, also when requests at the same time are counted; equal for all addresses of a host.
    pub receiver: WebhookId,
    /// Where it is posted to.
    pub url: String,
    /// Signs it; encrypted for the receiver.
    pub sealed_secret: String,
    /// What is posted.
    pub delivery: NewDelivery,
}

/// What a request to a receiver came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptResult {
    /// Of which delivery.
    pub id: DeliveryId,
    /// When it was sent.
    pub started_at: DateTime<Utc>,
    /// Until the answer, or until it was given up.
    pub duration_ms: u32,
    /// The receiver's answer, if one came.
    pub status: Option<u16>,
    /// What went wrong; absent after a success.
    pub error: Option<String>,
}

/// What can be asked of a consignment.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ConsignmentCommand {
    /// Take deliveries in; those that it has already are left out.
    Queue {
        /// For whom.
        webhook: WebhookId,
        /// Which.
        deliveries: Vec<NewDelivery>,
    },
    /// Take in what somebody is told once, who has no subscription. Nothing happens if that is there already.
    QueueCallback(CallbackDelivery),
    /// Claim the attempts that are due for one worker, all of them or none.
    Begin {
        /// Names the claim; only who knows it may say what came of the attempts.
        claim: Uuid,
        /// Now.
        at: DateTime<Utc>,
        /// Which deliveries.
        ids: Vec<DeliveryId>,
    },
    /// Say what came of claimed attempts. Those that are not named were not made, and are given back.
    Record {
        /// The claim.
        claim: Uuid,
        /// What came of them.
        results: Vec<AttemptResult>,
    },
    /// Deliver again what has ended, with attempts of its own.
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
    /// From 1; each redelivery begins another round.
    pub round: u32,
    /// From 1 in each round, without holes. One whose worker died is begun again under its number.
    pub attempt: u32,
}

/// What follows from an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// The receiver has it.
    Delivered,
    /// Another attempt.
    Retry {
        /// When.
        due_at: DateTime<Utc>,
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
    /// What came of it.
    #[serde(flatten)]
    pub result: AttemptResult,
    /// What follows.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// A delivery that is made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requeued {
    /// Which.
    pub id: DeliveryId,
    /// The round that begins.
    pub round: u32,
}

/// What can have happened to a consignment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ConsignmentEvent {
    /// Events are on their way.
    DeliveriesQueued {
        /// To whom.
        webhook: WebhookId,
        /// Which.
        deliveries: Vec<NewDelivery>,
    },
    /// Something is on its way to somebody who has no subscription.
    CallbackQueued(CallbackDelivery),
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
        /// For whom the deliveries are.
        webhook: WebhookId,
        /// What came of the attempts that were made.
        attempts: Vec<Ended>,
        /// Deliveries whose attempts were not made.
        returned: Vec<DeliveryId>,
    },
    /// Deliveries that had ended are made again.
    DeliveriesRequeued {
        /// When.
        at: DateTime<Utc>,
        /// Which.
        deliveries: Vec<Requeued>,
    },
}

impl DomainEvent for ConsignmentEvent {
    fn event_type(&self) -> String {
        match self {
            Self::DeliveriesQueued { .. } => "deliveries_queued",
            Self::CallbackQueued(_) => "callback_queued",
            Self::AttemptsBegun { .. } => "attempts_begun",
            Self::AttemptsEnded { .. } => "attempts_ended",
            Self::DeliveriesRequeued { .. } => "deliveries_requeued",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}
