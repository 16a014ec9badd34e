use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{KeyChange, SecretChange, WebhookChanges, WebhookFilters};
use crate::{
    automation::{EventType, RetryPolicy},
    kernel::Rejection,
};

/// The settings of a subscription that an admin chooses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookSpec {
    /// Where events are posted to; unique.
    pub url: String,
    /// Signs deliveries; encrypted, and only the worker that signs opens it.
    pub sealed_secret: Option<String>,
    /// Signs deliveries asymmetrically (`v1a`) in place of the secret; `X-Webhook-Signature` still uses the secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SigningKey>,
    /// The replaced secret and key, which sign too for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<Box<PreviousKeys>>,
    /// The subscribed event types: at least one, each once, sorted.
    pub events: Vec<EventType>,
    /// Whether events are delivered.
    pub enabled: bool,
    /// When failed attempts are repeated.
    #[serde(default, skip_serializing_if = "RetryPolicy::is_default")]
    pub retry: RetryPolicy,
    /// Which events of the subscribed types are delivered.
    #[serde(default, skip_serializing_if = "WebhookFilters::is_empty")]
    pub filters: Box<WebhookFilters>,
}

/// An ed25519 key pair.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKey {
    /// The private key, encrypted.
    pub sealed: String,
    /// The public key, as receivers know it (`whpk_…`).
    pub public: String,
}

/// A secret and a key that have been replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreviousKeys {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sealed_secret: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<SigningKey>,
    /// They sign until then.
    pub until: DateTime<Utc>,
}

impl PreviousKeys {
    fn unless_empty(self: Box<Self>) -> Option<Box<Self>> {
        (self.sealed_secret.is_some() || self.key.is_some()).then_some(self)
    }
}

impl WebhookSpec {
    pub(super) fn with(&self, changes: WebhookChanges) -> Result<Self, Rejection> {
        let mut previous = self.previous.clone();
        let sealed_secret = match changes.secret {
            SecretChange::Keep => self.sealed_secret.clone(),
            SecretChange::Clear => None,
            SecretChange::Seal(sealed) => Some(sealed),
        };
        let key = match (changes.key, &self.key) {
            (KeyChange::Keep, key) => key.clone(),
            (KeyChange::Clear, _) => None,
            (KeyChange::Provide(_), Some(key)) => Some(key.clone()),
            (KeyChange::Provide(key), None) => Some(key),
        };
        // A secret that is set or removed at once is not replaced by rotation: the one before it is void too.
        if let Some(previous) = &mut previous {
            if sealed_secret != self.sealed_secret {
                previous.sealed_secret = None;
            }
            if key.is_none() {
                previous.key = None;
            }
        }
        let changed = Self {
            url: changes.url.unwrap_or_else(|| self.url.clone()),
            sealed_secret,
            key,
            previous: previous.and_then(PreviousKeys::unless_empty),
            events: changes.events.unwrap_or_else(|| self.events.clone()),
            enabled: changes.enabled.unwrap_or(self.enabled),
            retry: changes.retry.unwrap_or(self.retry),
            filters: changes.filters.map_or_else(|| self.filters.clone(), Box::new),
        };
        changed.validate()
    }

    /// This subscription with a new secret and, if it signs by one, a new key. A subscription that signs by a key alone gets
    /// no secret.
    pub(super) fn rotated(
        &self,
        sealed_secret: String,
        key: SigningKey,
        keep_until: Option<DateTime<Utc>>,
    ) -> Self {
        let previous = keep_until.and_then(|until| {
            let (sealed_secret, key) = (self.sealed_secret.clone(), self.key.clone());
            Box::new(PreviousKeys { sealed_secret, key, until }).unless_empty()
        });
        let uses_secret = self.sealed_secret.is_some() || self.key.is_none();
        Self {
            sealed_secret: uses_secret.then_some(sealed_secret),
            key: self.key.as_ref().map(|_| key),
            previous,
            ..self.clone()
        }
    }

    pub(super) fn validate(mut self) -> Result<Self, Rejection> {
        self.events.sort_unstable();
        self.events.dedup();
        if self.events.is_empty() {
            return Err(Rejection::field("events", "must name at least one type of event"));
        }
        self.filters = Box::new(self.filters.validate()?);
        Ok(self)
    }
}
