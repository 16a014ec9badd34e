//! Makes a delivery of each event for each subscription that is told of it.
//!
//! Reads the log after its checkpoint, sends `Queue` for each consignment, and leaves log entries about what people should
//! know. The checkpoint moves after that; if the worker dies before, the same is done again and seen to be done: keys of
//! consignments and deliveries follow from subscription and event. Nothing of it lies in JetStream.

use std::time::Duration;

use signalbox_domain::{
    automation::{Health, ReportedReading, Rule, Webhook},
    extraction::ExtractionJob,
    fleet::Firmware,
    kernel::Decider,
    monitoring::Experiment,
};
use signalbox_event_store::{RecordedEvent, read_all_with};
use signalbox_messaging::Wakeup;
use signalbox_projections::automation::outgoing::{Background, Outgoing, TOLD};
use tokio::sync::Mutex;

use super::{notices, queue::Queue, subscriptions::Subscriptions};
use crate::{Context, Worker, WorkerError, checkpoint};

/// Events of one step.
const BATCH: i64 = 1000;
const CHECKPOINT: &str = "webhooks";

/// The fan-out.
#[derive(Debug, Default)]
pub struct WebhookFanOut {
    following: Mutex<Option<Following>>,
}

/// What it knows at a position of the log.
#[derive(Debug)]
struct Following {
    position: i64,
    subscriptions: Subscriptions,
}

impl Worker for WebhookFanOut {
    const NAME: &'static str = "webhook-fan-out";

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        const SOURCES: [&str; 7] = [
            Experiment::TYPE,
            ExtractionJob::TYPE,
            Firmware::TYPE,
            Health::TYPE,
            ReportedReading::TYPE,
            Rule::TYPE,
            Webhook::TYPE,
        ];
        let Wakeup::LogAppended { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| SOURCES.contains(&word.as_str()))
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let mut known = self.following.lock().await;
        let position = checkpoint::read(&context.pool, CHECKPOINT).await?;
        let mut following = match known.take().filter(|following| following.position == position) {
            Some(following) => following,
            None => Following { position, subscriptions: Subscriptions::at(&context.pool, position).await? },
        };
        let wanted =
            [TOLD.as_slice(), &["webhook_created", "webhook_updated", "webhook_deleted"], &notices::NOTICED];
        let events = read_all_with(&context.pool, position, BATCH, &wanted.concat()).await?;
        let Some(last) = events.last().map(|event| event.position) else {
            *known = Some(following);
            return Ok(false);
        };
        // What fails leaves `known` empty: the subscriptions are folded again from the checkpoint.
        following.deliver(context, &events).await?;
        notices::write(context, &events).await?;
        checkpoint::advance(&context.pool, CHECKPOINT, position, last).await?;
        notices::count(&events)?;
        following.position = last;
        *known = Some(following);
        Ok(events.len() as i64 == BATCH)
    }
}

impl Following {
    async fn deliver(&mut self, context: &Context, events: &[RecordedEvent]) -> Result<(), WorkerError> {
        let mut queue = Queue::default();
        let background = Background::of(&context.pool, events).await?;
        for recorded in events.iter().filter(|event| !event.payload.is_null()) {
            self.subscriptions.fold(recorded)?;
            let may_call_back = recorded.aggregate_type == ExtractionJob::TYPE;
            let is_heard = may_call_back || !self.subscriptions.is_silent();
            if !is_heard || !TOLD.contains(&recorded.event_type.as_str()) {
                continue;
            }
            if let Some(event) = told(&background, recorded) {
                queue.add_callback(recorded.aggregate_id, recorded.position, &event);
                for webhook in self.subscriptions.told_of(event.event_type) {
                    queue.add(webhook, recorded.position, &event);
                }
            }
        }
        queue.send(context, WebhookFanOut::NAME).await
    }
}

/// What `recorded` tells. One event that cannot be read must not keep all that come after it.
pub(super) fn told(background: &Background, recorded: &RecordedEvent) -> Option<Outgoing> {
    background.outgoing(recorded).unwrap_or_else(|error| {
        tracing::error!(%error, position = recorded.position, "an event is not told to webhooks");
        None
    })
}
