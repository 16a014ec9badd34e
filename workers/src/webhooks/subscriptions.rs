use std::collections::BTreeMap;

use signalbox_domain::{
    automation::{EventType, Webhook, WebhookEvent, WebhookSpec},
    kernel::{Decider, WebhookId},
};
use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgPool;

use crate::WorkerError;

/// The subscriptions as they were at a position of the log. They are folded here and not asked of the read model, so that
/// an event goes to those that were there when it happened, however late the fan-out comes.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(BTreeMap<WebhookId, WebhookSpec>);

impl Subscriptions {
    /// As they were after `position`.
    pub(super) async fn at(pool: &PgPool, position: i64) -> Result<Self, WorkerError> {
        let events: Vec<RecordedEvent> = sqlx::query_as(
            "SELECT position, aggregate_type, aggregate_id, sequence, event_type, event_version, payload,
                    'null'::jsonb AS metadata, recorded_at
               FROM events WHERE aggregate_type = $1 AND position <= $2 ORDER BY position",
        )
        .bind(Webhook::TYPE)
        .bind(position)
        .fetch_all(pool)
        .await?;
        let mut subscriptions = Self::default();
        for event in &events {
            subscriptions.fold(event)?;
        }
        Ok(subscriptions)
    }

    /// Takes in an event of a subscription; passes over others.
    pub(super) fn fold(&mut self, recorded: &RecordedEvent) -> Result<(), DecodeError> {
        if recorded.aggregate_type != Webhook::TYPE || recorded.payload.is_null() {
            return Ok(());
        }
        let id = WebhookId(recorded.aggregate_id);
        match recorded.decode::<Webhook>()? {
            WebhookEvent::WebhookCreated(new) => {
                self.0.insert(id, new.spec);
            }
            WebhookEvent::WebhookUpdated { to, .. } => {
                self.0.insert(id, to);
            }
            WebhookEvent::WebhookDeleted { .. } => {
                self.0.remove(&id);
            }
            WebhookEvent::WebhookReplayRequested(_) | WebhookEvent::WebhookReplayAdvanced { .. } => {}
        }
        Ok(())
    }

    /// Who is told of events of `event_type`.
    pub(super) fn told_of(&self, event_type: EventType) -> impl Iterator<Item = WebhookId> {
        let is_told = move |spec: &WebhookSpec| spec.enabled && spec.events.contains(&event_type);
        self.0.iter().filter(move |(_, spec)| is_told(spec)).map(|(id, _)| *id)
    }

    /// Whether nobody is told of anything.
    pub(super) fn is_silent(&self) -> bool {
        !self.0.values().any(|spec| spec.enabled)
    }
}
