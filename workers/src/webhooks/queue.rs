use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use signalbox_domain::{
    automation::{CallbackDelivery, Consignment, ConsignmentCommand, NewDelivery},
    extraction::Callback,
    kernel::{DeliveryId, WebhookId},
};
use signalbox_projections::automation::outgoing::Outgoing;
use signalbox_telemetry::Span;
use uuid::Uuid;

use crate::{Context, WorkerError, worker::span};

/// Positions of the log whose events for one subscription are one consignment. Large enough that a storm of events costs few
/// commands, small enough that a consignment is read quickly.
const STRETCH: i64 = 32;
/// Commands under way at the same time.
const CONCURRENT: usize = 16;

/// Deliveries on their way to their consignments.
#[derive(Debug, Default)]
pub(super) struct Queue {
    of_webhooks: BTreeMap<(WebhookId, i64), Stretch>,
    /// With the positions of their events, and the keys of their consignments.
    callbacks: Vec<(i64, Uuid, CallbackDelivery)>,
}

/// Deliveries of one consignment.
#[derive(Debug, Default)]
struct Stretch {
    /// Positions of their events.
    causes: Vec<i64>,
    deliveries: Vec<NewDelivery>,
}

impl Queue {
    /// Adds `event`, which is at `position`, for `webhook`.
    pub(super) fn add(&mut self, webhook: WebhookId, position: i64, event: &Outgoing) {
        let stretch = self.of_webhooks.entry((webhook, position / STRETCH)).or_default();
        stretch.causes.push(position);
        stretch.deliveries.push(delivery(webhook, event));
    }

    /// Adds `event`, which is at `position`, for whoever is to be told of it by the resource `of` itself.
    pub(super) fn add_callback(&mut self, of: Uuid, position: i64, event: &Outgoing) {
        let Some(Callback { receiver, url, sealed_secret }) = event.callback.clone() else { return };
        let delivery = delivery(receiver, event);
        let consignment = Uuid::new_v5(&of, format!("callback {}", event.id).as_bytes());
        let callback = CallbackDelivery { receiver, url, sealed_secret, delivery };
        self.callbacks.push((position, consignment, callback));
    }

    /// Queues them all. Done twice, nothing happens the second time: consignment and delivery follow from subscription and
    /// event.
    pub(super) async fn send(self, context: &Context, name: &str) -> Result<(), WorkerError> {
        let queued = stream::iter(self.of_webhooks)
            .map(|((webhook, number), stretch)| queue(context, name, webhook, number, stretch));
        queued.buffer_unordered(CONCURRENT).try_collect::<()>().await?;
        let called = stream::iter(self.callbacks).map(|(cause, id, callback)| async move {
            let command = ConsignmentCommand::QueueCallback(callback);
            context.send_because::<Consignment>(name, cause, id, "callback", &command).await.map(|_| ())
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
    Stretch { causes, deliveries }: Stretch,
) -> Result<(), WorkerError> {
    let id = Uuid::new_v5(&webhook.0, format!("stretch {number}").as_bytes());
    // Other deliveries are another command: the second time, some may have been there and others not.
    let ids: Vec<_> = deliveries.iter().map(|delivery| delivery.id.to_string()).collect();
    let key = format!("queue {}", ids.join(" "));
    let command = ConsignmentCommand::Queue { webhook, deliveries };
    let first = causes.first().copied().unwrap_or_default();
    let span = span_of(context, name, &causes).await;
    // Refused when the subscription has been deleted meanwhile.
    span.around(context.send_because::<Consignment>(name, first, id, &key, &command)).await.map(|_| ())
}
