//! Queues past events for a subscription on request.
//!
//! Processes the replay that the read model shows, one page in each step, and records its progress by
//! `AdvanceReplay`. If it crashes before, the page is queued again without effect. An event that cannot be read is listed as
//! skipped for that subscription, and queued when it can.

use std::{fmt::Display, time::Duration};

use signalbox_domain::{
    automation::{Replay, Webhook, WebhookCommand},
    kernel::{Decider, WebhookId},
};
use signalbox_event_store::{EventKey, RecordedEvent, read_all_with};
use signalbox_messaging::Wakeup;
use signalbox_projections::{
    automation::{
        WebhookRow,
        outgoing::{Background, PUBLISHED},
        webhooks::{replaying, webhook},
    },
    skipping_followers,
};
use uuid::Uuid;

use super::queue::Queue;
use crate::{
    Context, Worker, WorkerError,
    failures::Failures,
    skipped::{self, skip, skip_unreadable},
    tried::Tried,
};

/// Log positions of a page.
const PAGE: i64 = 1000;
/// Subscriptions of one step.
const BATCH: i64 = 20;

/// The replayer.
#[derive(Debug, Default)]
pub struct WebhookReplay {
    failures: Failures,
    tried: Tried<i64>,
}

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
        let paused = self.failures.paused();
        let limit = BATCH + (paused.len() + self.tried.count()) as i64;
        let mut rows = replaying(&context.pool, limit).await?;
        rows.retain(|row| !paused.contains(&row.id.0) && !self.tried.holds(row.id.0, &row.version));
        for row in rows.iter().take(BATCH as usize) {
            let Some(replay) = row.replay() else { continue };
            let worked_off = work_off(context, row, replay).await;
            if worked_off.is_ok() {
                self.tried.note(row.id.0, row.version);
            }
            self.failures.settle(row.id.0, worked_off)?;
        }
        retry(context).await?;
        self.failures.report(context, Self::NAME).await?;
        // The progress changes the read model, which wakes this worker.
        Ok(false)
    }
}

async fn work_off(context: &Context, row: &WebhookRow, replay: Replay) -> Result<(), WorkerError> {
    let slice = read_all_with(&mut *context.pool.acquire().await?, replay.after, PAGE, &PUBLISHED).await?;
    let to = slice.last().map_or(replay.last, |last| last.min(replay.last));
    let is_relevant =
        |key: &EventKey| key.position <= replay.last && PUBLISHED.contains(&key.event_type.as_str());
    skip_unreadable(&context.pool, &skipping(row.id.0), &slice.unreadable, is_relevant).await?;
    let end = slice.events.partition_point(|event| event.position <= replay.last);
    queue(context, row, &slice.events[..end]).await?;
    let key = format!("advance {} to {to}", replay.id);
    let command = WebhookCommand::AdvanceReplay { id: replay.id, to };
    context.send_for_item::<Webhook>(WebhookReplay::NAME, row.id.0, &key, &command).await?;
    Ok(())
}

/// Queues `events` for the subscription `row`. One that cannot be read is skipped.
async fn queue(context: &Context, row: &WebhookRow, events: &[RecordedEvent]) -> Result<(), WorkerError> {
    let mut queue = Queue::default();
    let background = Background::of(&context.pool, events, row.filters.ask_for_labels()).await?;
    for recorded in events.iter().filter(|event| !event.payload.is_null()) {
        match background.outgoing(recorded) {
            Ok(Some(event)) if row.receives(event.event_type.as_str(), &event.subject) => {
                queue.add(row.id, recorded.position, &event);
            }
            Ok(_) => {}
            Err(error) => {
                skip(&context.pool, &skipping(row.id.0), &recorded.into(), &error.to_string()).await?;
            }
        }
    }
    queue.send(context, WebhookReplay::NAME).await
}

/// Queues skipped events that can be read now.
async fn retry(context: &Context) -> Result<(), WorkerError> {
    for follower in skipping_followers(&context.pool, &format!("worker.{}", skipping("%"))).await? {
        let name = follower.strip_prefix("worker.").unwrap_or(&follower);
        let id = name.rsplit('.').next().and_then(|id| id.parse().ok()).unwrap_or(WebhookId(Uuid::nil()));
        let row = webhook(&context.pool, id).await?;
        for position in skipped::due(&context.pool, name).await? {
            let slice = skipped::event_at(&context.pool, position, &PUBLISHED).await?;
            // A subscription that was deleted meanwhile gets nothing.
            if row.is_some() && slice.events.is_empty() {
                continue;
            }
            skipped::begin(&context.pool, name, position).await?;
            if let Some(row) = &row {
                queue(context, row, &slice.events).await?;
            }
            skipped::done(&context.pool, name, position).await?;
        }
    }
    Ok(())
}

/// The name under which events are listed that a replay to `webhook` skipped.
fn skipping(webhook: impl Display) -> String {
    format!("{}.{webhook}", WebhookReplay::NAME)
}
