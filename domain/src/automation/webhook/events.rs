use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{NewWebhook, Replay, SigningKey, WebhookChanges, WebhookSpec};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum WebhookCommand {
    /// Create it.
    Create(NewWebhook),
    /// Change the fields that are present.
    Change(WebhookChanges),
    /// Sign with another secret, and with another key if it signs by one.
    RotateSecret {
        /// The new secret, encrypted.
        sealed_secret: String,
        /// The new key.
        key: SigningKey,
        /// How long the present ones sign too.
        keep_until: Option<DateTime<Utc>>,
        /// The present time.
        #[serde(default)]
        at: Option<DateTime<Utc>>,
    },
    /// The receiver at `url` answered 410 Gone: send it nothing more.
    DisableGone { url: String },
    /// Deliver past events; one replay at a time.
    Replay(Replay),
    /// The replay has been processed up to a position.
    AdvanceReplay {
        /// Which.
        id: Uuid,
        /// How far.
        to: i64,
    },
    /// Remove it; its pending deliveries are dropped.
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WebhookEvent {
    /// A subscription exists now.
    WebhookCreated(NewWebhook),
    /// It is another one.
    WebhookUpdated {
        /// Before.
        from: WebhookSpec,
        /// Now.
        to: WebhookSpec,
        /// Whether it was disabled because its receiver answered 410 Gone.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        gone: bool,
    },
    /// A replay of past events was requested.
    WebhookReplayRequested(Replay),
    /// The replay was processed up to a position.
    WebhookReplayAdvanced {
        /// Id of the replay.
        id: Uuid,
        /// How far.
        to: i64,
        /// Whether that is all of it.
        finished: bool,
    },
    /// It is gone.
    WebhookDeleted {
        /// Its address, which is free again.
        url: String,
    },
}

event_kinds!(WebhookEvent, WebhookEventKind {
    WebhookCreated = "webhook_created", "1";
    WebhookUpdated = "webhook_updated", "1";
    WebhookReplayRequested = "webhook_replay_requested", "1";
    WebhookReplayAdvanced = "webhook_replay_advanced", "1";
    WebhookDeleted = "webhook_deleted", "1";
});
