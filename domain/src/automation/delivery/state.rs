use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    AttemptResult, DeliveryBatchEvent, MAX_POSTPONED, MAX_POSTPONEMENT, MIN_POSTPONEMENT, RetryPolicy,
    Verdict,
};
use crate::kernel::{DeliveryId, WebhookId};

/// Seconds until a claim expires. Longer than any request made under the claim may take, so that an attempt of a
/// crashed worker is not repeated while its request is still open.
pub const CLAIM_SECONDS: i64 = 15;

const GONE: u16 = 410;
const TOO_MANY_REQUESTS: u16 = 429;
const SERVICE_UNAVAILABLE: u16 = 503;

/// The deliveries that a short range of the log causes for one subscription. They are claimed and recorded together:
/// one event for many deliveries makes it cheap to record every attempt.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct DeliveryBatch {
    pub(super) webhook: Option<WebhookId>,
    pub(super) deliveries: BTreeMap<DeliveryId, Delivery>,
}

/// One of its deliveries.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Delivery {
    pub(super) round: u32,
    /// Attempts of this round that have ended, without those that the receiver postponed.
    pub(super) attempts: u32,
    /// Attempts of this round that the receiver postponed.
    #[serde(default)]
    pub(super) postponed: u32,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// For its next attempt; the first is due at once.
    Waiting {
        due_at: Option<DateTime<Utc>>,
    },
    Claimed {
        claim: Uuid,
        at: DateTime<Utc>,
        due_at: Option<DateTime<Utc>>,
    },
    /// Delivered or dead.
    Ended,
}

impl Delivery {
    fn new(round: u32) -> Self {
        Self { round, attempts: 0, postponed: 0, phase: Phase::Waiting { due_at: None } }
    }

    pub(super) fn is_due(&self, now: DateTime<Utc>) -> bool {
        match self.phase {
            Phase::Waiting { due_at } => due_at.is_none_or(|due_at| due_at <= now),
            Phase::Claimed { at, .. } => at + TimeDelta::seconds(CLAIM_SECONDS) <= now,
            Phase::Ended => false,
        }
    }

    /// Whether an attempt is being made, or is due at `now`: it need not be hurried.
    pub(super) fn is_under_way(&self, now: DateTime<Utc>) -> bool {
        match self.phase {
            Phase::Waiting { due_at } => due_at.is_none_or(|due_at| due_at <= now),
            Phase::Claimed { .. } => true,
            Phase::Ended => false,
        }
    }

    pub(super) fn is_claimed_by(&self, claim: Uuid) -> bool {
        matches!(self.phase, Phase::Claimed { claim: holder, .. } if holder == claim)
    }

    /// The verdict on an attempt that finished at `at` with `result`.
    pub(super) fn judge(&self, retry: RetryPolicy, result: &AttemptResult, at: DateTime<Utc>) -> Verdict {
        if result.error.is_none() {
            return Verdict::Delivered;
        }
        if result.is_final {
            return Verdict::DeadLetter;
        }
        if retry == RetryPolicy::Standard {
            match (result.status, result.retry_after_seconds) {
                (Some(GONE), _) => return Verdict::DeadLetter,
                (Some(TOO_MANY_REQUESTS | SERVICE_UNAVAILABLE), Some(seconds))
                    if self.postponed < MAX_POSTPONED =>
                {
                    let wait = TimeDelta::seconds(seconds.into()).clamp(MIN_POSTPONEMENT, MAX_POSTPONEMENT);
                    return Verdict::Retry { due_at: at + wait, postponed: true };
                }
                _ => {}
            }
        }
        match retry.wait_after(self.attempts + 1) {
            Some(wait) => Verdict::Retry { due_at: at + wait, postponed: false },
            None => Verdict::DeadLetter,
        }
    }
}

impl DeliveryBatch {
    pub(super) fn apply(&mut self, event: DeliveryBatchEvent) {
        match event {
            DeliveryBatchEvent::DeliveriesQueued { webhook, deliveries } => {
                self.webhook = Some(webhook);
                self.deliveries.extend(deliveries.into_iter().map(|new| (new.id, Delivery::new(1))));
            }
            DeliveryBatchEvent::CallbackQueued(callback) => {
                self.webhook = Some(callback.receiver);
                self.deliveries.insert(callback.delivery.id, Delivery::new(1));
            }
            DeliveryBatchEvent::MessageQueued(message) => {
                self.webhook = Some(message.receiver());
                self.deliveries.insert(message.delivery.id, Delivery::new(1));
            }
            DeliveryBatchEvent::AttemptsBegun { claim, at, attempts } => {
                for begun in attempts {
                    self.change(begun.id, |delivery| {
                        let due_at = match delivery.phase {
                            Phase::Waiting { due_at } | Phase::Claimed { due_at, .. } => due_at,
                            Phase::Ended => None,
                        };
                        delivery.phase = Phase::Claimed { claim, at, due_at };
                    });
                }
            }
            DeliveryBatchEvent::AttemptsEnded { attempts, returned, .. } => {
                for ended in attempts {
                    self.change(ended.result.id, |delivery| {
                        match ended.verdict {
                            Verdict::Retry { postponed: true, .. } => delivery.postponed += 1,
                            _ => delivery.attempts = ended.attempt,
                        }
                        delivery.phase = match ended.verdict {
                            Verdict::Retry { due_at, .. } => Phase::Waiting { due_at: Some(due_at) },
                            Verdict::Delivered | Verdict::DeadLetter => Phase::Ended,
                        };
                    });
                }
                for id in returned {
                    self.change(id, |delivery| {
                        if let Phase::Claimed { due_at, .. } = delivery.phase {
                            delivery.phase = Phase::Waiting { due_at };
                        }
                    });
                }
            }
            DeliveryBatchEvent::DeliveriesRequeued { deliveries, .. } => {
                for requeued in deliveries {
                    self.change(requeued.id, |delivery| *delivery = Delivery::new(requeued.round));
                }
            }
        }
    }

    fn change(&mut self, id: DeliveryId, change: impl FnOnce(&mut Delivery)) {
        if let Some(delivery) = self.deliveries.get_mut(&id) {
            change(delivery);
        }
    }
}
