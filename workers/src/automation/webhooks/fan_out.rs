//! Queues a delivery of each event for each of its subscriptions.
//!
//! Reads the log after its checkpoint, sends `Queue` for each batch, and writes log entries for users. The checkpoint
//! moves after that; if the worker crashes before, the same commands are sent again without effect: keys of batches
//! and deliveries are derived from subscription and event. Nothing is kept in JetStream.

use std::time::Duration;

use signalbox_domain::{
    automation::{Webhook, WebhookEventKind},
    catalog::Aggregate,
    extraction::ExtractionJob,
    kernel::{Decider, words_of},
};
use signalbox_event_store::{EventKey, RecordedEvent, read_all_with};
use signalbox_messaging::Wakeup;
use signalbox_projections::automation::outgoing::{Background, PUBLISHED};
use tokio::sync::Mutex;

use super::{notices, queue::Queue, subscriptions::Subscriptions};
use crate::{
    Context, Worker, WorkerError, checkpoint,
    skipped::{self, skip_or_fail, skip_unreadable},
};

/// Events of one step.
const BATCH: i64 = 1000;
const CHECKPOINT: &str = "webhooks";
/// When the fan-out reads the events of an aggregate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    AtOnce,
    /// There are so many other events of the aggregate that these wait for the period.
    OnceAPeriod,
    Never,
}

fn reading(aggregate: Aggregate) -> Reading {
    match aggregate {
        Aggregate::Alarm
        | Aggregate::Experiment
        | Aggregate::ExtractionJob
        | Aggregate::Firmware
        | Aggregate::Health
        | Aggregate::ReportedReading
        | Aggregate::Rule
        | Aggregate::Webhook => Reading::AtOnce,
        Aggregate::Agent | Aggregate::DeliveryBatch | Aggregate::LogEntry | Aggregate::Transfer => {
            Reading::OnceAPeriod
        }
        Aggregate::Contact
        | Aggregate::PluginInstance
        | Aggregate::PluginPackage
        | Aggregate::ApiToken
        | Aggregate::Session
        | Aggregate::User
        | Aggregate::Channel
        | Aggregate::Dashboard
        | Aggregate::AgentToken
        | Aggregate::Job => Reading::Never,
    }
}

/// Whether events of `kind` change the subscriptions.
fn is_subscribing(kind: WebhookEventKind) -> bool {
    match kind {
        WebhookEventKind::WebhookCreated
        | WebhookEventKind::WebhookUpdated
        | WebhookEventKind::WebhookDeleted => true,
        WebhookEventKind::WebhookReplayRequested | WebhookEventKind::WebhookReplayAdvanced => false,
    }
}

/// The fan-out.
#[derive(Debug, Default)]
pub struct WebhookFanOut {
    following: Mutex<Option<Following>>,
}

/// The subscriptions at a position of the log.
#[derive(Debug)]
struct Following {
    position: i64,
    subscriptions: Subscriptions,
}

impl Worker for WebhookFanOut {
    const NAME: &'static str = notices::NAME;

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    /// Transfers, agents and the users' log are read once a period: their other events are frequent.
    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::LogAppended { aggregates, .. } = wakeup else { return false };
        aggregates
            .iter()
            .filter_map(|word| Aggregate::of_word(word))
            .any(|aggregate| reading(aggregate) == Reading::AtOnce)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let mut known = self.following.lock().await;
        let position = checkpoint::read(&context.pool, CHECKPOINT).await?;
        let mut following = match known.take().filter(|following| following.position == position) {
            Some(following) => following,
            None => Following { position, subscriptions: Subscriptions::at(&context.pool, position).await? },
        };
        let words = words();
        let slice = read_all_with(&mut *context.pool.acquire().await?, position, BATCH, &words).await?;
        let Some(last) = slice.last() else {
            // A subscription that was retried is folded again from the log.
            if !retry(context).await? {
                *known = Some(following);
            }
            return Ok(false);
        };
        let is_handled = |key: &EventKey| words.contains(&key.event_type.as_str());
        // A failure leaves `known` empty: the subscriptions are folded again from the checkpoint.
        skip_unreadable(&context.pool, Self::NAME, &slice.unreadable, is_handled).await?;
        slice.unreadable.iter().for_each(|event| following.subscriptions.forget(&event.key));
        following.deliver(context, &slice.events).await?;
        notices::write(context, &slice.events).await?;
        checkpoint::advance(&context.pool, CHECKPOINT, position, last).await?;
        notices::count(&slice.events);
        following.position = last;
        *known = Some(following);
        Ok(slice.is_full)
    }
}

/// Words of the events that it reads.
fn words() -> Vec<&'static str> {
    [PUBLISHED.as_slice(), &words_of(is_subscribing), &notices::NOTICED].concat()
}

/// Handles skipped events that can be read now; returns whether one of a subscription was among them.
async fn retry(context: &Context) -> Result<bool, WorkerError> {
    let mut has_subscription = false;
    for position in skipped::due(&context.pool, WebhookFanOut::NAME).await? {
        let slice = skipped::event_at(&context.pool, position, &words()).await?;
        if slice.events.is_empty() {
            continue;
        }
        let subscriptions = Subscriptions::at(&context.pool, position).await?;
        skipped::begin(&context.pool, WebhookFanOut::NAME, position).await?;
        Following { position, subscriptions }.deliver(context, &slice.events).await?;
        notices::write(context, &slice.events).await?;
        skipped::done(&context.pool, WebhookFanOut::NAME, position).await?;
        has_subscription |= slice.events.iter().any(|event| event.aggregate_type == Webhook::TYPE);
    }
    Ok(has_subscription)
}

impl Following {
    async fn deliver(&mut self, context: &Context, events: &[RecordedEvent]) -> Result<(), WorkerError> {
        let mut queue = Queue::default();
        // A subscription that asks for labels may begin within these events.
        let with_labels = self.subscriptions.ask_for_labels()
            || events.iter().any(|recorded| recorded.aggregate_type == Webhook::TYPE);
        let background = Background::of(&context.pool, events, with_labels).await?;
        for recorded in events.iter().filter(|event| !event.payload.is_null()) {
            if let Err(error) = self.subscriptions.fold(recorded) {
                skip_or_fail(&context.pool, WebhookFanOut::NAME, recorded, error.into()).await?;
                continue;
            }
            let may_call_back = recorded.aggregate_type == ExtractionJob::TYPE;
            let is_heard = may_call_back || !self.subscriptions.is_silent();
            if !is_heard || !PUBLISHED.contains(&recorded.event_type.as_str()) {
                continue;
            }
            let published = match background.outgoing(recorded) {
                Ok(published) => published,
                Err(error) => {
                    let error = error.to_string();
                    skipped::skip(&context.pool, WebhookFanOut::NAME, &recorded.into(), &error).await?;
                    continue;
                }
            };
            if let Some(event) = published {
                queue.add_callback(recorded.aggregate_id, recorded.position, &event);
                for webhook in self.subscriptions.receivers(event.event_type, &event.subject) {
                    queue.add(webhook, recorded.position, &event);
                }
            }
        }
        queue.send(context, WebhookFanOut::NAME).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_aggregate_that_is_read_wakes_the_fan_out() {
        let words = words();
        for aggregate in Aggregate::ALL {
            let is_read = aggregate.kinds().iter().any(|kind| words.contains(&kind.word()));
            assert_eq!(is_read, reading(*aggregate) != Reading::Never, "{aggregate:?}");
        }
    }
}
