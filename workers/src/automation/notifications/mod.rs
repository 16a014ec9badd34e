//! Notifies contacts of alarms.
//!
//! Reads the log after its progress, up to where the read models are, and keeps a notice per contact and step of an alarm.
//! Time adds reminders and escalations. When the notices of a contact are due, they become one message, whose id follows from
//! them; it is sent as `Queue` to its delivery and then removed. Progress and notices, notices and message are
//! committed together, so after a crash the next process continues with the same message ids, and of two processes that do
//! the same, one does it. [`super::WebhookDelivery`] delivers.

mod compose;
mod noticed;

use std::time::Duration;

use chrono::{DateTime, Utc};
use signalbox_config::{Server, Sso};
use signalbox_domain::{
    automation::{Alarm, DeliveryBatch, DeliveryBatchCommand, Grouping, MessageDelivery, message_id},
    kernel::{Decider, ErrorKind},
};
use signalbox_event_store::{EventKey, RecordedEvent, read_all_with};
use signalbox_messaging::Wakeup;
use signalbox_projections::{
    Projection,
    automation::{
        AutomationProjection,
        composing::{
            Composed, WaitingContact, alarm_facts, commit_message, composed, forget_contacts,
            remove_composed, waiting_contacts, waiting_notices,
        },
        notices::{commit_noticed, commit_repeated, commit_retried, due_alarms},
    },
    checkpoint as shown_until,
};
use uuid::Uuid;

use self::noticed::Noticed;
use crate::{
    Context, Worker, WorkerError, checkpoint,
    skipped::{self, skip_unreadable},
};

/// Events of one step.
const BATCH: i64 = 1000;
/// Alarms whose repeated notices are noted in one step.
const REPEATED: i64 = 200;
/// Notices of one message; those that are left make the next one.
const NOTICES: i64 = 500;
/// Messages that are sent in one step.
const MESSAGES: i64 = 100;
/// Events that are read.
const WORDS: [&str; 5] =
    ["alarm_fired", "alarm_announced", "alarm_cleared", "alarm_acknowledged", "alarm_unacknowledged"];

/// The worker.
#[derive(Debug)]
pub struct Notifications {
    /// Where browsers reach the console, without the slash at the end.
    console: String,
}

impl Notifications {
    /// One whose messages lead to the address of the console that the settings name.
    pub fn new(server: &Server, sso: &Sso) -> Self {
        let address = if server.public_url.is_empty() { &sso.public_url } else { &server.public_url };
        Self { console: address.trim_end_matches('/').to_owned() }
    }
}

impl Worker for Notifications {
    const NAME: &'static str = "notifications";

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn wakes(&self, wakeup: &Wakeup) -> bool {
        let Wakeup::ReadAdvanced { aggregates, .. } = wakeup else { return false };
        aggregates.iter().any(|word| word == Alarm::TYPE)
    }

    async fn step(&self, context: &Context) -> Result<bool, WorkerError> {
        let now = context.server_time().await?;
        let has_sent = send(context).await?;
        let has_more = follow(context, now).await?;
        repeat(context, now).await?;
        let has_composed = compose(context, &self.console, now).await?;
        Ok(has_sent || has_more || has_composed)
    }
}

/// Keeps the notices of new events.
async fn follow(context: &Context, now: DateTime<Utc>) -> Result<bool, WorkerError> {
    let position = checkpoint::read(&context.pool, Notifications::NAME).await?;
    let shown = shown_until(&context.pool, AutomationProjection::NAME).await?;
    let slice = read_all_with(&mut *context.pool.acquire().await?, position, BATCH, &WORDS).await?;
    let last = slice.last().unwrap_or(position).min(shown);
    if last <= position {
        retry(context, now).await?;
        return Ok(false);
    }
    let is_handled = |key: &EventKey| key.position <= last && WORDS.contains(&key.event_type.as_str());
    skip_unreadable(&context.pool, Notifications::NAME, &slice.unreadable, is_handled).await?;
    let events: Vec<_> = slice.events.iter().filter(|event| event.position <= last).collect();
    let noticed = Noticed::of(context, &events, now).await?;
    let moved = (position, last);
    let is_current =
        commit_noticed(&context.pool, Notifications::NAME, moved, now, &noticed.notices, &noticed.changes)
            .await?;
    Ok(slice.is_full && last < shown || !is_current)
}

/// Keeps the notices of skipped events that can be read now.
async fn retry(context: &Context, now: DateTime<Utc>) -> Result<(), WorkerError> {
    for position in skipped::due(&context.pool, Notifications::NAME).await? {
        let slice = skipped::event_at(&context.pool, position, &WORDS).await?;
        if slice.events.is_empty() {
            continue;
        }
        let events: Vec<&RecordedEvent> = slice.events.iter().collect();
        let noticed = Noticed::of(context, &events, now).await?;
        skipped::begin(&context.pool, Notifications::NAME, position).await?;
        commit_retried(&context.pool, now, &noticed.notices, &noticed.changes).await?;
        skipped::done(&context.pool, Notifications::NAME, position).await?;
    }
    Ok(())
}

/// Keeps the reminders and escalations that are due.
async fn repeat(context: &Context, now: DateTime<Utc>) -> Result<(), WorkerError> {
    let due = due_alarms(&context.pool, now, REPEATED).await?;
    if due.is_empty() {
        return Ok(());
    }
    let repetitions: Vec<_> = due.into_iter().map(|due| noticed::repetition(due, now)).collect();
    Ok(commit_repeated(&context.pool, now, &repetitions).await?)
}

/// Composes the messages that are due, and sends them.
async fn compose(context: &Context, console: &str, now: DateTime<Utc>) -> Result<bool, WorkerError> {
    let (mut has_composed, mut gone) = (false, Vec::new());
    for contact in waiting_contacts(&context.pool).await? {
        match contact.name.clone() {
            Some(name) => has_composed |= compose_for(context, console, &contact, name, now).await?,
            None => gone.push(contact.id),
        }
    }
    if !gone.is_empty() {
        forget_contacts(&context.pool, &gone).await?;
    }
    if has_composed {
        send(context).await?;
    }
    Ok(has_composed)
}

async fn compose_for(
    context: &Context,
    console: &str,
    contact: &WaitingContact,
    name: String,
    now: DateTime<Utc>,
) -> Result<bool, WorkerError> {
    let waiting = waiting_notices(&context.pool, contact.id, now, NOTICES).await?;
    let quiet_hours = contact.quiet_hours.as_ref().map(|hours| &hours.0);
    let due = Grouping { quiet_hours, last_message: contact.composed_at }.due(&waiting, now);
    if due.is_empty() {
        return Ok(false);
    }
    let alarms: Vec<_> = due.iter().map(|notice| notice.alarm).collect();
    let facts = alarm_facts(&context.pool, &alarms).await?;
    let id = message_id(contact.id, &due);
    let message = compose::message(console, (contact.id, name), (id, &due), facts, now);
    let message = serde_json::to_value(message).map_err(WorkerError::Message)?;
    Ok(commit_message(&context.pool, contact.id, &due, now, &Composed { id, message }).await?)
}

/// Sends the oldest composed messages to their deliveries; returns whether there were any.
async fn send(context: &Context) -> Result<bool, WorkerError> {
    let found = composed(&context.pool, MESSAGES).await?;
    let has_any = !found.is_empty();
    for Composed { id, message } in found {
        match serde_json::from_value::<MessageDelivery>(message) {
            Ok(message) => queue(context, id, message).await?,
            Err(error) => tracing::error!(message.id = %id, %error, "a message to a contact cannot be read"),
        }
        remove_composed(&context.pool, id).await?;
    }
    Ok(has_any)
}

async fn queue(context: &Context, id: Uuid, message: MessageDelivery) -> Result<(), WorkerError> {
    let command = DeliveryBatchCommand::QueueMessage(message);
    match context.send::<DeliveryBatch>(Notifications::NAME, id, None, "queue", &command).await {
        Ok(_) => Ok(()),
        // The contact was deleted meanwhile.
        Err(rejection) if rejection.kind == ErrorKind::NotFound => Ok(()),
        Err(rejection) if rejection.is_unreadable_history() || rejection.kind == ErrorKind::Invalid => {
            tracing::error!(%rejection, message.id = %id, "a message to a contact cannot be queued");
            Ok(())
        }
        Err(rejection) => Err(rejection.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use signalbox_config::Config;

    use super::*;

    #[test]
    fn messages_lead_to_the_address_of_the_console() {
        let mut config = Config::load(None, &HashMap::new()).unwrap();
        let console = |config: &Config| Notifications::new(&config.server, &config.sso).console;
        config.sso.public_url = "https://login.example.org".to_owned();
        assert_eq!(console(&config), "https://login.example.org");
        config.server.public_url = "https://plant.example.org/".to_owned();
        assert_eq!(console(&config), "https://plant.example.org");
    }
}
