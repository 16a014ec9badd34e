use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{
    AttemptResult, Begun, DeliveryBatch, DeliveryBatchCommand, DeliveryBatchEvent, Ended, NewDelivery,
    Requeued, RetryPolicy,
};
use crate::{
    automation::{contact::CONTACT_CLAIM, webhook::WEBHOOK_CLAIM},
    kernel::{Claim, ClaimOp, Decider, DeliveryId, Rejection, WebhookId},
};

impl Decider for DeliveryBatch {
    const TYPE: &'static str = "delivery";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 1;
    const IS_ONE_TRACE: bool = true;
    /// Deliveries that cannot be read are not sent, and keep no others of the batch from being sent.
    const DISPENSABLE: &'static [&'static str] = &["deliveries_queued"];
    type Command = DeliveryBatchCommand;
    type Event = DeliveryBatchEvent;

    fn decide(&self, command: DeliveryBatchCommand) -> Result<Vec<DeliveryBatchEvent>, Rejection> {
        match command {
            DeliveryBatchCommand::Queue { webhook, deliveries } => self.queue(webhook, deliveries),
            DeliveryBatchCommand::QueueCallback(callback) => {
                Ok(self.queue_one(DeliveryBatchEvent::CallbackQueued(callback)))
            }
            DeliveryBatchCommand::QueueMessage(message) => {
                Ok(self.queue_one(DeliveryBatchEvent::MessageQueued(message)))
            }
            DeliveryBatchCommand::Begin { claim, at, ids } => self.begin(claim, at, ids),
            DeliveryBatchCommand::Record { claim, results, retry } => self.record(claim, results, retry),
            DeliveryBatchCommand::Redeliver { at, ids } => self.redeliver(at, ids),
        }
    }

    fn evolve(&mut self, event: DeliveryBatchEvent) {
        self.apply(event);
    }

    /// Nothing is queued for a subscription or contact that has been deleted meanwhile.
    fn claims(_id: Uuid, event: &DeliveryBatchEvent) -> Vec<Claim> {
        match event {
            DeliveryBatchEvent::DeliveriesQueued { webhook, .. } => {
                vec![Claim::new(ClaimOp::Require, WEBHOOK_CLAIM, webhook.to_string())]
            }
            DeliveryBatchEvent::MessageQueued(message) => {
                vec![Claim::new(ClaimOp::Require, CONTACT_CLAIM, message.contact.to_string())]
            }
            _ => Vec::new(),
        }
    }

    fn claim_rejection(_op: ClaimOp, kind: &str) -> Rejection {
        Rejection::not_found(if kind == CONTACT_CLAIM { "Contact" } else { "Webhook" })
    }
}

impl DeliveryBatch {
    fn queue(
        &self,
        webhook: WebhookId,
        deliveries: Vec<NewDelivery>,
    ) -> Result<Vec<DeliveryBatchEvent>, Rejection> {
        if self.webhook.is_some_and(|present| present != webhook) {
            return Err(Rejection::conflict("other_webhook", "These deliveries are another webhook's."));
        }
        let mut seen = BTreeSet::new();
        let new =
            |delivery: &NewDelivery| !self.deliveries.contains_key(&delivery.id) && seen.insert(delivery.id);
        let deliveries: Vec<_> = deliveries.into_iter().filter(new).collect();
        Ok(if deliveries.is_empty() {
            Vec::new()
        } else {
            vec![DeliveryBatchEvent::DeliveriesQueued { webhook, deliveries }]
        })
    }

    /// The batch of a single delivery.
    fn queue_one(&self, queued: DeliveryBatchEvent) -> Vec<DeliveryBatchEvent> {
        if self.webhook.is_none() { vec![queued] } else { Vec::new() }
    }

    fn begin(
        &self,
        claim: Uuid,
        at: DateTime<Utc>,
        ids: Vec<DeliveryId>,
    ) -> Result<Vec<DeliveryBatchEvent>, Rejection> {
        let begin = |id: DeliveryId| {
            let delivery = self.deliveries.get(&id).filter(|delivery| delivery.is_due(at))?;
            Some(Begun { id, round: delivery.round, attempt: delivery.attempts + 1 })
        };
        let not_due =
            || Rejection::conflict("not_due", "Another worker has claimed one of these deliveries.");
        let attempts: Vec<_> = ids.into_iter().map(begin).collect::<Option<_>>().ok_or_else(not_due)?;
        if attempts.is_empty() {
            Err(not_due())
        } else {
            Ok(vec![DeliveryBatchEvent::AttemptsBegun { claim, at, attempts }])
        }
    }

    fn record(
        &self,
        claim: Uuid,
        results: Vec<AttemptResult>,
        retry: RetryPolicy,
    ) -> Result<Vec<DeliveryBatchEvent>, Rejection> {
        let Some(webhook) = self.webhook else { return Err(Rejection::not_found("Delivery")) };
        let mut claimed: BTreeSet<_> = self
            .deliveries
            .iter()
            .filter(|(_, delivery)| delivery.is_claimed_by(claim))
            .map(|(id, _)| *id)
            .collect();
        if claimed.is_empty() {
            let message = "The claim has lapsed, and another worker makes these attempts.";
            return Err(Rejection::conflict("claim_lapsed", message));
        }
        let mut attempts = Vec::new();
        for result in results {
            if !claimed.remove(&result.id) {
                continue;
            }
            let Some(delivery) = self.deliveries.get(&result.id) else { continue };
            let ended_at = result.started_at + TimeDelta::milliseconds(result.duration_ms.into());
            attempts.push(Ended {
                round: delivery.round,
                attempt: delivery.attempts + 1,
                verdict: delivery.judge(retry, &result, ended_at),
                result,
            });
        }
        let returned = claimed.into_iter().collect();
        Ok(vec![DeliveryBatchEvent::AttemptsEnded { claim, webhook, attempts, returned }])
    }

    fn redeliver(
        &self,
        at: DateTime<Utc>,
        ids: Vec<DeliveryId>,
    ) -> Result<Vec<DeliveryBatchEvent>, Rejection> {
        let ids: BTreeSet<_> = ids.into_iter().collect();
        let mut deliveries = Vec::new();
        for id in ids {
            let Some(delivery) = self.deliveries.get(&id) else {
                return Err(Rejection::not_found("Delivery"));
            };
            if delivery.is_under_way(at) {
                let message = "The delivery is being attempted: wait until this attempt has ended.";
                return Err(Rejection::conflict("delivery_pending", message));
            }
            deliveries.push(Requeued { id, round: delivery.round + 1 });
        }
        Ok(if deliveries.is_empty() {
            Vec::new()
        } else {
            vec![DeliveryBatchEvent::DeliveriesRequeued { at, deliveries }]
        })
    }
}
