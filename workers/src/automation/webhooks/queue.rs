use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{
    automation::{CallbackDelivery, DeliveryBatch, DeliveryBatchCommand, NewDelivery},
    extraction::Callback,
    kernel::{DeliveryId, WebhookId},
};
use signalbox_projections::automation::outgoing::Outgoing;
use signalbox_telemetry::Span;
use uuid::Uuid;

use crate::{Context, WorkerError, worker::span};

/// Positions of the log whose events for one subscription are one batch. Large enough that a storm of events costs few
/// commands, small enough that a batch is read quickly.
const POSITIONS: i64 = 32;
/// Commands in progress at the same time.
const CONCURRENT: usize = 16;

/// Deliveries on their way to their batches.
#[derive(Debug, Default)]
pub(super) struct Queue {
    of_webhooks: BTreeMap<(WebhookId, i64), Pending>,
    /// With the positions of their events, and the keys of their batches.
    callbacks: Vec<(i64, Uuid, CallbackDelivery)>,
}

/// Deliveries of one batch.
#[derive(Debug, Default)]
struct Pending {
    /// Positions of their events.
    causes: Vec<i64>,
    deliveries: Vec<NewDelivery>,
}

impl Queue {
    /// Adds `event`, which is at `position`, for `webhook`.
    pub(super) fn add(&mut self, webhook: WebhookId, position: i64, event: &Outgoing) {
        let pending = self.of_webhooks.entry((webhook, position / POSITIONS)).or_default();
        pending.causes.push(position);
        pending.deliveries.push(delivery(webhook, event));
    }

    /// Adds `event`, which is at `position`, for the callback of resource `of`.
    pub(super) fn add_callback(&mut self, of: Uuid, position: i64, event: &Outgoing) {
        let Some(Callback { receiver, url, sealed_secret, no_loopback }) = event.callback.clone() else {
            return;
        };
        let delivery = delivery(receiver, event);
        let batch = Uuid::new_v5(&of, format!("callback {}", event.id).as_bytes());
        let callback = CallbackDelivery { receiver, url, sealed_secret, no_loopback, delivery };
        self.callbacks.push((position, batch, callback));
    }

    /// Queues them all. Done twice, nothing happens the second time: batch and delivery follow from subscription and
    /// event.
    pub(super) async fn send(self, context: &Context, name: &str) -> Result<(), WorkerError> {
        let queued = stream::iter(self.of_webhooks)
            .map(|((webhook, number), pending)| queue(context, name, webhook, number, pending));
        queued.buffer_unordered(CONCURRENT).try_collect::<()>().await?;
        let called = stream::iter(self.callbacks).map(|(cause, id, callback)| async move {
            let command = DeliveryBatchCommand::QueueCallback(callback);
            context.send_because::<DeliveryBatch>(name, cause, id, "callback", &command).await.map(|_| ())
        });
        called.buffer_unordered(CONCURRENT).try_collect().await
    }
}

fn delivery(receiver: WebhookId, event: &Outgoing) -> NewDelivery {
    NewDelivery {
        id: DeliveryId(Uuid::new_v5(&receiver.0, event.id.as_bytes())),
        event_id: event.id,
        event_type: event.event_type.as_str().to_owned(),
        body: event.body.clone(),
    }
}

/// A part of the trace of the first cause that is joined to those of the others.
async fn span_of(context: &Context, name: &str, causes: &[i64]) -> Span {
    let mut traces = context.traces_at(causes).await.into_iter();
    let mut span = span(name, traces.next());
    traces.for_each(|traceparent| span.link(&traceparent));
    span
}

async fn queue(
    context: &Context,
    name: &str,
    webhook: WebhookId,
    number: i64,
    Pending { causes, deliveries }: Pending,
) -> Result<(), WorkerError> {
    let id = Uuid::new_v5(&webhook.0, format!("stretch {number}").as_bytes());
    // Other deliveries are another command: the second time, some may have been there and others not.
    let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id.to_string()).collect();
    let key = format!("queue {}", ids.join(" "));
    let command = DeliveryBatchCommand::Queue { webhook, deliveries };
    let first = causes.first().copied().unwrap_or_default();
    let span = span_of(context, name, &causes).await;
    // Refused when the subscription has been deleted meanwhile.
    span.around(context.send_because::<DeliveryBatch>(name, first, id, &key, &command)).await.map(|_| ())
}
