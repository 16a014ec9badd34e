//! Queues past events for a subscription that asked for them.
//!
//! Works off the stretch that the read model shows, a portion in each step, and says by `AdvanceReplay` how far it came. If it
//! dies before, the portion is queued again and seen to be there.

use std::time::Duration;

use signalbox_domain::{
    automation::{EventType, Replay, Webhook, WebhookCommand},
    kernel::{Decider, WebhookId},
};
use signalbox_event_store::read_all_with;
use signalbox_messaging::Wakeup;
use signalbox_projections::automation::{
    WebhookRow,
    outgoing::{Background, TOLD},
    webhooks::replaying,
};

use super::{fan_out::told, queue::Queue};
use crate::{Context, Worker, WorkerError};

/// Events of a portion.
const PORTION: i64 = 1000;
/// Subscriptions of one step.
const BATCH: i64 = 20;

/// The replayer.
#[derive(Debug)]
pub struct WebhookReplay;

impl Worker for WebhookReplay {
    const NAME: &'static str = "webhook-replay";

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Webhook::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        for row in replaying(&context.pool, BATCH).await? {
            if let Some(replay) = row.replay() {
                work_off(context, &row, replay).await?;
            }
        }
        // What was advanced shows in the read model, which wakes this worker.
        Ok(false)
    }
}

async fn work_off(context: &Context, row: &WebhookRow, replay: Replay) -> Result<(), WorkerError> {
    let is_told = |event: EventType| row.events.iter().any(|word| word == event.as_str());
    let mut queue = Queue::default();
    let events = read_all_with(&context.pool, replay.after, PORTION, &TOLD).await?;
    let background = Background::of(&context.pool, &events).await?;
    let portion = || events.iter().take_while(|event| event.position <= replay.last);
    for recorded in portion().filter(|event| !event.payload.is_null()) {
        if let Some(event) = told(&background, recorded).filter(|event| is_told(event.event_type)) {
            queue.add(WebhookId(row.id), recorded.position, &event);
        }
    }
    queue.send(context, WebhookReplay::NAME).await?;
    let to = portion().last().map_or(replay.last, |event| event.position);
    let key = format!("advance {} to {to}", replay.id);
    let command = WebhookCommand::AdvanceReplay { id: replay.id, to };
    context.send_if_still_due::<Webhook>(WebhookReplay::NAME, row.id, &key, &command).await?;
    Ok(())
}
