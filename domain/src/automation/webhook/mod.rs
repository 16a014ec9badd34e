//! Webhook subscriptions: where events are sent, which, and how they are signed.

mod events;
mod filters;
mod spec;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{WebhookCommand, WebhookEvent, WebhookEventKind};
pub use self::{
    filters::{ChannelSubject, EventSubject, MAX_FILTERED, WebhookFilters},
    spec::{PreviousKeys, SigningKey, WebhookSpec},
};
use super::{EventType, RetryPolicy};
use crate::kernel::{Claim, ClaimOp, Decider, Rejection, UserId};

/// A new subscription.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewWebhook {
    pub owner: UserId,
    #[serde(flatten)]
    pub spec: WebhookSpec,
}

/// A change of the secret.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretChange {
    /// It stays.
    #[default]
    Keep,
    /// Deliveries are signed no more.
    Clear,
    /// Another one, encrypted.
    Seal(String),
}

/// A change of the key pair.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyChange {
    /// It stays.
    #[default]
    Keep,
    /// The secret signs again.
    Clear,
    /// It is this one, if there was none before.
    Provide(SigningKey),
}

/// Changes of a subscription; absent fields stay unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookChanges {
    /// New address.
    pub url: Option<String>,
    pub secret: SecretChange,
    #[serde(default)]
    pub key: KeyChange,
    /// New list.
    pub events: Option<Vec<EventType>>,
    /// On or off.
    pub enabled: Option<bool>,
    /// Another policy.
    #[serde(default)]
    pub retry: Option<RetryPolicy>,
    /// Other filters.
    #[serde(default)]
    pub filters: Option<WebhookFilters>,
}

/// A range of the log whose past events are delivered to a subscription on request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// Its key.
    pub id: Uuid,
    /// Events after this position.
    pub after: i64,
    /// The last of them.
    pub last: i64,
}

/// A webhook subscription.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Webhook {
    spec: Option<WebhookSpec>,
    replay: Option<Replay>,
}

const URL_CLAIM: &str = "webhook.url";
/// Others may require that the subscription exists.
pub(super) const WEBHOOK_CLAIM: &str = "webhook";

impl Decider for Webhook {
    const TYPE: &'static str = "webhook";
    const CONTEXT: &'static str = "automation";
    const STATE_VERSION: i32 = 1;
    type Command = WebhookCommand;
    type Event = WebhookEvent;

    fn decide(&self, command: WebhookCommand) -> Result<Vec<WebhookEvent>, Rejection> {
        let Some(present) = &self.spec else {
            return match command {
                WebhookCommand::Create(new) => {
                    let spec = new.spec.validate()?;
                    Ok(vec![WebhookEvent::WebhookCreated(NewWebhook { spec, ..new })])
                }
                _ => Err(Rejection::not_found("Webhook")),
            };
        };
        match command {
            WebhookCommand::Create(_) => {
                Err(Rejection::conflict("webhook_exists", "This webhook exists already."))
            }
            WebhookCommand::Change(changes) => Ok(updated(present, present.with(changes)?, false)),
            // Receivers may rely until then on the one that was replaced, and only one can be kept.
            WebhookCommand::RotateSecret { keep_until: Some(_), at: Some(at), .. }
                if present.previous.as_ref().is_some_and(|previous| previous.until > at) =>
            {
                Err(Rejection::conflict(
                    "rotation_running",
                    "The secret before the present one still signs, until `old_secret_until`: rotate when that has passed, or with `keep_old_seconds` 0, which voids both at once.",
                ))
            }
            WebhookCommand::RotateSecret { sealed_secret, key, keep_until, .. } => {
                Ok(updated(present, present.rotated(sealed_secret, key, keep_until), false))
            }
            // The address was changed meanwhile, and that receiver has not answered.
            WebhookCommand::DisableGone { url } if url != present.url => Ok(Vec::new()),
            WebhookCommand::DisableGone { .. } => {
                Ok(updated(present, WebhookSpec { enabled: false, ..present.clone() }, true))
            }
            WebhookCommand::Replay(_) if self.replay.is_some() => Err(Rejection::conflict(
                "replay_running",
                "Past events are being delivered to this webhook already: try again when they are.",
            )),
            WebhookCommand::Replay(replay) => Ok(vec![WebhookEvent::WebhookReplayRequested(replay)]),
            WebhookCommand::AdvanceReplay { id, to } => Ok(self.advance(id, to)),
            WebhookCommand::Delete => Ok(vec![WebhookEvent::WebhookDeleted { url: present.url.clone() }]),
        }
    }

    fn evolve(&mut self, event: WebhookEvent) {
        match event {
            WebhookEvent::WebhookCreated(new) => self.spec = Some(new.spec),
            WebhookEvent::WebhookUpdated { to, .. } => self.spec = Some(to),
            WebhookEvent::WebhookReplayRequested(replay) => self.replay = Some(replay),
            WebhookEvent::WebhookReplayAdvanced { finished: true, .. } => self.replay = None,
            WebhookEvent::WebhookReplayAdvanced { to, .. } => {
                if let Some(replay) = &mut self.replay {
                    replay.after = to;
                }
            }
            WebhookEvent::WebhookDeleted { .. } => *self = Self::default(),
        }
    }

    fn claims(id: Uuid, event: &WebhookEvent) -> Vec<Claim> {
        let url = |op, url: &str| Claim::new(op, URL_CLAIM, without_spelling(url));
        let own = |op| Claim::new(op, WEBHOOK_CLAIM, id.to_string());
        match event {
            WebhookEvent::WebhookCreated(new) => vec![url(ClaimOp::Take, &new.spec.url), own(ClaimOp::Take)],
            WebhookEvent::WebhookUpdated { from, to, .. } if from.url != to.url => {
                vec![url(ClaimOp::Release, &from.url), url(ClaimOp::Take, &to.url)]
            }
            WebhookEvent::WebhookDeleted { url: old } => {
                vec![url(ClaimOp::Release, old), own(ClaimOp::Release)]
            }
            _ => Vec::new(),
        }
    }

    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        let message = "Another webhook has this url: change that one, or choose another url.";
        Rejection::conflict("webhook_url_taken", message)
    }
}

fn updated(from: &WebhookSpec, to: WebhookSpec, gone: bool) -> Vec<WebhookEvent> {
    if *from == to {
        return Vec::new();
    }
    vec![WebhookEvent::WebhookUpdated { from: from.clone(), to, gone }]
}

impl Webhook {
    fn advance(&self, id: Uuid, to: i64) -> Vec<WebhookEvent> {
        match self.replay {
            Some(replay) if replay.id == id && to > replay.after => {
                vec![WebhookEvent::WebhookReplayAdvanced { id, to, finished: to >= replay.last }]
            }
            // Another worker was faster.
            _ => Vec::new(),
        }
    }
}

/// The canonical form of an address: scheme and host in lower case, and `/` for the empty path.
fn without_spelling(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host_ends = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_ends);
    let path = if path == "/" { "" } else { path };
    format!("{}://{}{path}", scheme.to_ascii_lowercase(), host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, TimeDelta, Utc};

    use super::*;
    use crate::{automation::Severity, kernel::ChannelId};

    fn spec(events: &[EventType]) -> WebhookSpec {
        WebhookSpec {
            url: "https://example.org/hook".to_owned(),
            sealed_secret: Some("sealed".to_owned()),
            key: None,
            previous: None,
            events: events.to_vec(),
            enabled: true,
            retry: RetryPolicy::Default,
            filters: Box::default(),
        }
    }

    fn created() -> Webhook {
        let mut webhook = Webhook::default();
        let new = NewWebhook { owner: UserId(Uuid::nil()), spec: spec(&[EventType::ExperimentStarted]) };
        webhook.evolve(WebhookEvent::WebhookCreated(new));
        webhook
    }

    #[test]
    fn the_list_has_at_least_one_event_and_each_once() {
        use EventType::{ExperimentStarted, SensorReading};
        let create = |events: &[EventType]| {
            let new = NewWebhook { owner: UserId(Uuid::nil()), spec: spec(events) };
            Webhook::default().decide(WebhookCommand::Create(new))
        };
        assert!(create(&[]).is_err());
        let events = create(&[ExperimentStarted, SensorReading, ExperimentStarted]).unwrap();
        let [WebhookEvent::WebhookCreated(new)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(new.spec.events, [SensorReading, ExperimentStarted]);
        let none = WebhookChanges { events: Some(Vec::new()), ..Default::default() };
        assert!(created().decide(WebhookCommand::Change(none)).is_err());
    }

    #[test]
    fn what_is_absent_stays_and_a_change_of_nothing_is_no_event() {
        let change = |changes| created().decide(WebhookCommand::Change(changes)).unwrap();
        assert_eq!(change(WebhookChanges::default()), []);
        let off = change(WebhookChanges { enabled: Some(false), ..Default::default() });
        let [WebhookEvent::WebhookUpdated { to, .. }] = off.as_slice() else { panic!("{off:?}") };
        assert_eq!(to.sealed_secret.as_deref(), Some("sealed"));
        let cleared = change(WebhookChanges { secret: SecretChange::Clear, ..Default::default() });
        let [WebhookEvent::WebhookUpdated { to, .. }] = cleared.as_slice() else { panic!("{cleared:?}") };
        assert_eq!(to.sealed_secret, None);
    }

    /// The specification after a command.
    fn after(webhook: &mut Webhook, command: WebhookCommand) -> WebhookSpec {
        let events = webhook.decide(command).unwrap();
        events.into_iter().for_each(|event| webhook.evolve(event));
        webhook.spec.clone().unwrap()
    }

    fn key(name: &str) -> SigningKey {
        SigningKey { sealed: format!("sealed {name}"), public: format!("whpk_{name}") }
    }

    fn rotate(number: u32, keep_until: Option<DateTime<Utc>>) -> WebhookCommand {
        let (sealed_secret, key) = (format!("secret {number}"), key(&number.to_string()));
        WebhookCommand::RotateSecret { sealed_secret, key, keep_until, at: Some(DateTime::UNIX_EPOCH) }
    }

    #[test]
    fn a_secret_that_is_kept_for_a_while_is_not_replaced_before() {
        let mut webhook = created();
        let until = DateTime::UNIX_EPOCH + TimeDelta::days(1);
        after(&mut webhook, rotate(1, Some(until)));
        let refused = webhook.decide(rotate(2, Some(until + TimeDelta::days(1)))).unwrap_err();
        assert_eq!(refused.code, "rotation_running");
        let void = after(&mut webhook, rotate(2, None));
        assert_eq!((void.sealed_secret.as_deref(), void.previous), (Some("secret 2"), None));
        assert!(webhook.decide(rotate(3, Some(until))).is_ok());
    }

    #[test]
    fn rotation_keeps_the_old_secret_for_a_while() {
        let (mut webhook, until) = (created(), DateTime::UNIX_EPOCH);
        let rotated = after(&mut webhook, rotate(1, Some(until)));
        let previous = PreviousKeys { sealed_secret: Some("sealed".to_owned()), key: None, until };
        assert_eq!((rotated.sealed_secret.as_deref(), rotated.key), (Some("secret 1"), None));
        assert_eq!(rotated.previous, Some(Box::new(previous)));
        let again = after(&mut webhook, rotate(2, None));
        assert_eq!((again.sealed_secret.as_deref(), again.previous), (Some("secret 2"), None));
        after(&mut webhook, rotate(3, Some(until)));
        let secret = SecretChange::Seal("given".to_owned());
        let given =
            after(&mut webhook, WebhookCommand::Change(WebhookChanges { secret, ..Default::default() }));
        assert_eq!((given.sealed_secret.as_deref(), given.previous), (Some("given"), None));
    }

    #[test]
    fn rotation_replaces_a_key_and_adds_no_secret_to_it() {
        let (mut webhook, until) = (created(), DateTime::UNIX_EPOCH);
        let change = WebhookCommand::Change;
        let provide = |name| WebhookChanges { key: KeyChange::Provide(key(name)), ..Default::default() };
        assert_eq!(after(&mut webhook, change(provide("a"))).key, Some(key("a")));
        assert_eq!(after(&mut webhook, change(provide("b"))).key, Some(key("a")), "there is one already");
        let rotated = after(&mut webhook, rotate(1, Some(until)));
        assert_eq!((rotated.sealed_secret.as_deref(), rotated.key), (Some("secret 1"), Some(key("1"))));
        assert_eq!(rotated.previous.unwrap().key, Some(key("a")));
        let no_secret = WebhookChanges { secret: SecretChange::Clear, ..Default::default() };
        let keyed = after(&mut webhook, change(no_secret));
        assert_eq!(
            *keyed.previous.unwrap(),
            PreviousKeys { sealed_secret: None, key: Some(key("a")), until }
        );
        let rotated = after(&mut webhook, rotate(2, None));
        assert_eq!((rotated.sealed_secret, rotated.key), (None, Some(key("2"))));
        let clear = WebhookChanges { key: KeyChange::Clear, ..Default::default() };
        assert_eq!(after(&mut webhook, change(clear)).key, None);
    }

    #[test]
    fn gone_disables_the_address_that_answered() {
        let mut webhook = created();
        let gone = |url: &str| WebhookCommand::DisableGone { url: url.to_owned() };
        assert_eq!(webhook.decide(gone("https://example.org/other")).unwrap(), []);
        let events = webhook.decide(gone("https://example.org/hook")).unwrap();
        let [WebhookEvent::WebhookUpdated { to, gone: true, .. }] = events.as_slice() else {
            panic!("{events:?}")
        };
        assert!(!to.enabled);
        assert!(!after(&mut webhook, gone("https://example.org/hook")).enabled);
        assert_eq!(webhook.decide(gone("https://example.org/hook")).unwrap(), []);
    }

    /// Field names and forms that the log keeps; defaults are not written, so that older programs read such events.
    #[test]
    fn a_specification_is_written_in_this_form() {
        let written = |spec: &WebhookSpec| serde_json::to_value(spec).unwrap();
        let plain = spec(&[EventType::LogEntry]);
        let expected = serde_json::json!({"url": "https://example.org/hook", "sealed_secret": "sealed",
            "events": ["log.entry"], "enabled": true});
        assert_eq!(written(&plain), expected);
        let until = DateTime::UNIX_EPOCH;
        let full = WebhookSpec {
            key: Some(key("a")),
            previous: Some(Box::new(PreviousKeys { sealed_secret: None, key: Some(key("b")), until })),
            retry: RetryPolicy::Standard,
            filters: Box::new(WebhookFilters {
                channels: vec![ChannelId(Uuid::nil())],
                labels: [("line".to_owned(), "1".to_owned())].into(),
                jobs: vec![7],
                severity: vec![Severity::Critical],
            }),
            ..plain
        };
        let expected = serde_json::json!({"url": "https://example.org/hook", "sealed_secret": "sealed",
            "key": {"sealed": "sealed a", "public": "whpk_a"},
            "previous": {"key": {"sealed": "sealed b", "public": "whpk_b"}, "until": "1970-01-01T00:00:00Z"},
            "events": ["log.entry"], "enabled": true, "retry": "standard",
            "filters": {"channels": ["00000000-0000-0000-0000-000000000000"], "labels": {"line": "1"}, "jobs": [7],
                "severity": ["critical"]}});
        assert_eq!(written(&full), expected);
        assert_eq!(serde_json::from_value::<WebhookSpec>(expected).unwrap(), full);
    }

    #[test]
    fn two_spellings_of_an_address_are_one() {
        let same = ["http://Example.org/", "HTTP://example.ORG", "http://example.org/"];
        assert!(same.iter().all(|url| without_spelling(url) == "http://example.org"));
        assert_ne!(without_spelling("http://example.org/a"), without_spelling("http://example.org/A"));
        assert_ne!(without_spelling("http://example.org/a"), without_spelling("http://example.org/a/"));
    }

    #[test]
    fn only_one_replay_runs_and_its_progress_never_falls() {
        let (mut webhook, id) = (created(), Uuid::from_u128(7));
        let replay = Replay { id, after: 10, last: 30 };
        let mut run = |command| {
            let events = webhook.decide(command);
            events.iter().flatten().for_each(|event| webhook.evolve(event.clone()));
            events.map(|events| events.len())
        };
        assert_eq!(run(WebhookCommand::Replay(replay)), Ok(1));
        assert!(run(WebhookCommand::Replay(replay)).is_err());
        assert_eq!(run(WebhookCommand::AdvanceReplay { id, to: 20 }), Ok(1));
        assert_eq!(run(WebhookCommand::AdvanceReplay { id, to: 20 }), Ok(0));
        assert_eq!(run(WebhookCommand::AdvanceReplay { id: Uuid::nil(), to: 30 }), Ok(0));
        assert_eq!(run(WebhookCommand::AdvanceReplay { id, to: 30 }), Ok(1));
        assert_eq!(run(WebhookCommand::Replay(replay)), Ok(1));
    }
}
