//! Queues a delivery of each event for each of its subscriptions.
//!
//! Reads the log after its checkpoint, sends `Queue` for each batch, and writes log entries for users. The checkpoint
//! moves after that; if the worker crashes before, the same commands are sent again without effect: keys of batches
//! and deliveries are derived from subscription and event. Nothing is kept in JetStream.

use std::time::Duration;

use signalbox_domain::{
    automation::{Alarm, Health, ReportedReading, Rule, Webhook},
    extraction::ExtractionJob,
    fleet::Firmware,
    kernel::Decider,
    monitoring::Experiment,
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
/// Aggregates whose events are handled at once.
const SOURCES: [&str; 8] = [
    Alarm::TYPE,
    Experiment::TYPE,
    ExtractionJob::TYPE,
    Firmware::TYPE,
    Health::TYPE,
    ReportedReading::TYPE,
    Rule::TYPE,
    Webhook::TYPE,
];
/// Events that change the subscriptions.
const SUBSCRIBING: [&str; 3] = ["webhook_created", "webhook_updated", "webhook_deleted"];

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
        aggregates.iter().any(|word| SOURCES.contains(&word.as_str()))
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
    [PUBLISHED.as_slice(), &SUBSCRIBING, &notices::NOTICED].concat()
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
    use std::{collections::BTreeSet, fs, path::Path};

    use signalbox_domain::{
        automation::DeliveryBatch,
        monitoring::LogEntry,
        transfer::{Agent, Transfer},
    };

    use super::*;

    /// Aggregates with so many other events that theirs wait for the period.
    const READ_ONCE_A_PERIOD: [&str; 4] = [Agent::TYPE, DeliveryBatch::TYPE, LogEntry::TYPE, Transfer::TYPE];
    /// Kinds of events that leave the subscriptions as they are.
    const NOT_SUBSCRIBING: [&str; 2] = ["webhook_replay_advanced", "webhook_replay_requested"];
    /// Kinds of events of the aggregates with notices that lead to none.
    const NOT_NOTICED: [&str; 18] = [
        "attempts_begun",
        "callback_queued",
        "deliveries_queued",
        "deliveries_requeued",
        "firmware_apply_requested",
        "firmware_bundle_added",
        "firmware_claimed",
        "firmware_created",
        "firmware_deleted",
        "firmware_downloaded",
        "firmware_files_removed",
        "firmware_rollback_requested",
        "firmware_verified",
        "message_queued",
        "webhook_created",
        "webhook_deleted",
        "webhook_replay_advanced",
        "webhook_replay_requested",
    ];

    /// Every kind of event of `aggregate`, by the golden files, which are complete.
    fn kinds(aggregate: &str) -> BTreeSet<String> {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/event_store/tests/golden");
        let files = fs::read_dir(golden.join(aggregate)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        names.map(|name| name.split_once('.').unwrap().0.to_owned()).collect()
    }

    fn decided(lists: [&[&str]; 2]) -> BTreeSet<String> {
        let all = lists.concat();
        let once: BTreeSet<_> = all.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(once.len(), all.len(), "a kind is listed twice");
        once
    }

    #[test]
    fn every_kind_is_noticed_or_listed_as_not() {
        let aggregates = [DeliveryBatch::TYPE, Firmware::TYPE, Health::TYPE, Webhook::TYPE];
        let all: BTreeSet<_> = aggregates.into_iter().flat_map(kinds).collect();
        assert_eq!(decided([&notices::NOTICED, &NOT_NOTICED]), all);
    }

    #[test]
    fn every_webhook_event_changes_subscriptions_or_is_listed_as_not() {
        assert_eq!(decided([&SUBSCRIBING, &NOT_SUBSCRIBING]), kinds(Webhook::TYPE));
    }

    #[test]
    fn every_aggregate_that_is_read_wakes_the_fan_out() {
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../infra/event_store/tests/golden");
        let aggregates = fs::read_dir(golden).unwrap();
        let names = aggregates.map(|folder| folder.unwrap().file_name().into_string().unwrap());
        let is_read = |aggregate: &String| {
            let words = words();
            kinds(aggregate).iter().any(|kind| words.contains(&kind.as_str()))
        };
        let read: BTreeSet<_> = names.filter(is_read).collect();
        assert_eq!(read, decided([&SOURCES, &READ_ONCE_A_PERIOD]));
    }
}
