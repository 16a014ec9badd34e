use std::collections::BTreeMap;

use signalbox_domain::{
    automation::{EventSubject, EventType, Webhook, WebhookEvent, WebhookSpec},
    kernel::{Decider, WebhookId},
};
use signalbox_event_store::{DecodeError, EventKey, RecordedEvent, UnreadableEvent, read_type};
use sqlx::PgPool;

use crate::WorkerError;

/// The subscriptions at a position of the log. They are folded here and not taken from the read model, so that an
/// event is sent to those that existed when it was recorded, however far the fan-out lags.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(BTreeMap<WebhookId, WebhookSpec>);

impl Subscriptions {
    /// As they were after `position`.
    pub(super) async fn at(pool: &PgPool, position: i64) -> Result<Self, WorkerError> {
        let mut subscriptions = Self::default();
        for event in read_type(pool, Webhook::TYPE, position).await? {
            match event {
                Ok(event) => {
                    if let Err(error) = subscriptions.fold(&event) {
                        tracing::error!(%error, position = event.position, "a subscription cannot be read");
                    }
                }
                Err(UnreadableEvent { key, error }) => {
                    tracing::error!(
                        error,
                        position = key.position,
                        "an event of a subscription cannot be read"
                    );
                    subscriptions.forget(&key);
                }
            }
        }
        Ok(subscriptions)
    }

    /// Takes in an event of a subscription; passes over others. A subscription whose event cannot be read receives nothing
    /// until the next one that can: that event may have deleted it, or changed its address.
    pub(super) fn fold(&mut self, recorded: &RecordedEvent) -> Result<(), DecodeError> {
        if recorded.aggregate_type != Webhook::TYPE || recorded.payload.is_null() {
            return Ok(());
        }
        let id = WebhookId(recorded.aggregate_id);
        let event = recorded.decode::<Webhook>().inspect_err(|_| drop(self.0.remove(&id)))?;
        match event {
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

    /// The event `key` cannot be read: if it is of a subscription, events are no longer sent to that.
    pub(super) fn forget(&mut self, key: &EventKey) {
        if key.aggregate_type == Webhook::TYPE
            && let Some(id) = key.id()
        {
            self.0.remove(&WebhookId(id));
        }
    }

    /// The enabled subscriptions to events of `event_type` about `subject`.
    pub(super) fn receivers<'a>(
        &'a self,
        event_type: EventType,
        subject: &'a EventSubject,
    ) -> impl Iterator<Item = WebhookId> + 'a {
        let receives = move |spec: &WebhookSpec| {
            spec.enabled && spec.events.contains(&event_type) && spec.filters.pass(subject)
        };
        self.0.iter().filter(move |(_, spec)| receives(spec)).map(|(id, _)| *id)
    }

    /// Whether labels of channels decide which events some subscription receives.
    pub(super) fn ask_for_labels(&self) -> bool {
        self.0.values().any(|spec| spec.enabled && spec.filters.ask_for_labels())
    }

    /// Whether no event is sent to any subscription.
    pub(super) fn is_silent(&self) -> bool {
        !self.0.values().any(|spec| spec.enabled)
    }
}
