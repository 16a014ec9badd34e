//! Mailboxes: one JetStream stream, a subject per agent and message key, a durable consumer per agent.
//!
//! The subject `mail.agent.<agent>.<key>` holds at most one message, so posting twice is one message. A fetched
//! message is held back for 30 s and then given out again, until it is acknowledged by its id from any gateway.
//! For correctness nothing depends on it: the reconciler posts again what the log says is outstanding.

use std::time::Duration;

use async_nats::jetstream::{
    consumer::{AckPolicy, PullConsumer, pull},
    context::PublishErrorKind,
    stream::{Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType, Stream},
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::kernel::AgentId;

use crate::{Bus, BusError};

/// Name of the stream.
pub(crate) const STREAM: &str = "MAIL";
/// How long a delivered message is held back before it is delivered again.
const HOLD_BACK: Duration = Duration::from_secs(30);
/// A consumer of an agent that was away for longer is made anew.
const FORGET_CONSUMER: Duration = Duration::from_secs(7 * 24 * 3600);
/// JetStream's code for "this subject holds its one message already".
const MAX_PER_SUBJECT_EXCEEDED: u64 = 10077;

/// What an agent is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MailMessage {
    /// Kind of message, e.g. `transfer_request`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its content.
    pub data: Value,
}

/// A message in a mailbox.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mail {
    /// Positive; acknowledges it.
    pub id: i64,
    /// What the agent is told.
    pub message: MailMessage,
}

/// The mailboxes of all agents. Clones share them.
#[derive(Debug, Clone)]
pub struct Mailbox {
    bus: Bus,
}

impl Mailbox {
    /// The mailboxes on `bus`, made if they are missing.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    pub async fn open(bus: &Bus) -> Result<Self, BusError> {
        let mailbox = Self { bus: bus.clone() };
        bus.open_stream_patiently(stream_config()).await?;
        Ok(mailbox)
    }

    /// Leaves `message` for `agent` under `key` (letters, digits, `-`, `.`), once while it is not taken.
    ///
    /// # Errors
    /// [`BusError::Publish`] when it was not stored.
    pub async fn post(&self, agent: AgentId, key: &str, message: &MailMessage) -> Result<(), BusError> {
        let payload = serde_json::to_vec(message).map_err(|error| BusError::Publish(error.to_string()))?;
        let subject = subject(agent, key);
        match self.publish(&subject, payload.clone()).await {
            Err(error) if error.is_missing => {
                self.ensure().await?;
                self.publish(&subject, payload).await.map_err(BusError::from)
            }
            published => published.map_err(BusError::from),
        }
    }

    /// How many messages wait in all mailboxes.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    pub async fn size(&self) -> Result<u64, BusError> {
        let mut stream = self.stream().await?;
        let info = stream.info().await.map_err(|error| BusError::Stream(error.to_string()))?;
        Ok(info.state.messages)
    }

    /// Up to `max` messages for `agent`; waits at most `wait` for the first one.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer; ask again.
    pub async fn fetch(&self, agent: AgentId, max: usize, wait: Duration) -> Result<Vec<Mail>, BusError> {
        let consumer = self.consumer(agent).await?;
        let mut mails = pull(&consumer, 1, Some(wait)).await?;
        if !mails.is_empty() && max > 1 {
            mails.extend(pull(&consumer, max - 1, None).await?);
        }
        Ok(mails)
    }

    /// Removes the messages `ids` of `agent`; ids that are unknown or another agent's are ignored.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer; ask again.
    pub async fn acknowledge(&self, agent: AgentId, ids: &[i64]) -> Result<(), BusError> {
        let stream = self.stream().await?;
        let own = format!("mail.agent.{agent}.");
        for id in ids.iter().filter_map(|id| u64::try_from(*id).ok()).filter(|id| *id > 0) {
            match stream.get_raw_message(id).await {
                Ok(message) if message.subject.starts_with(&own) => {
                    // Another acknowledgement may have been faster.
                    let _ = stream.delete_message(id).await;
                }
                Ok(_) => {}
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {}
                Err(error) => return Err(BusError::Stream(error.to_string())),
            }
        }
        Ok(())
    }

    /// Whether the message `key` of `agent` still waits.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    pub async fn holds(&self, agent: AgentId, key: &str) -> Result<bool, BusError> {
        match self.stream().await?.get_last_raw_message_by_subject(&subject(agent, key)).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(false),
            Err(error) => Err(BusError::Stream(error.to_string())),
        }
    }

    /// Removes the message `key` of `agent`, if it still waits.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    pub async fn withdraw(&self, agent: AgentId, key: &str) -> Result<(), BusError> {
        let purged = self.stream().await?.purge().filter(subject(agent, key)).await;
        purged.map(|_| ()).map_err(|error| BusError::Stream(error.to_string()))
    }

    /// Removes everything for `agent`.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    pub async fn remove(&self, agent: AgentId) -> Result<(), BusError> {
        let stream = self.stream().await?;
        let purged = stream.purge().filter(format!("mail.agent.{agent}.>")).await;
        purged.map_err(|error| BusError::Stream(error.to_string()))?;
        // It may never have connected, and then has no consumer.
        let _ = stream.delete_consumer(&consumer_name(agent)).await;
        Ok(())
    }

    /// Makes the stream again after JetStream has lost it.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    pub async fn ensure(&self) -> Result<(), BusError> {
        self.bus.open_stream(stream_config()).await.map(|_| ())
    }

    async fn publish(&self, subject: &str, payload: Vec<u8>) -> Result<(), PostError> {
        let sent = self.bus.jetstream.publish(subject.to_owned(), payload.into()).await;
        match sent.map_err(PostError::from_publish)?.await {
            Ok(_) => Ok(()),
            Err(error) if is_posted_already(&error) => Ok(()),
            Err(error) => Err(PostError::from_publish(error)),
        }
    }

    async fn stream(&self) -> Result<Stream, BusError> {
        match self.bus.jetstream.get_stream(STREAM).await {
            Ok(stream) => Ok(stream),
            Err(_) => self.bus.open_stream(stream_config()).await,
        }
    }

    async fn consumer(&self, agent: AgentId) -> Result<PullConsumer, BusError> {
        let config = pull::Config {
            durable_name: Some(consumer_name(agent)),
            filter_subject: format!("mail.agent.{agent}.>"),
            ack_policy: AckPolicy::Explicit,
            ack_wait: HOLD_BACK,
            inactive_threshold: FORGET_CONSUMER,
            ..pull::Config::default()
        };
        let made = self.bus.jetstream.create_consumer_on_stream(config.clone(), STREAM).await;
        match made {
            Ok(consumer) => Ok(consumer),
            Err(_) => {
                let made = self.bus.open_stream(stream_config()).await?.create_consumer(config).await;
                made.map_err(|error| BusError::Stream(error.to_string()))
            }
        }
    }
}

fn stream_config() -> Config {
    Config {
        name: STREAM.to_owned(),
        subjects: vec!["mail.agent.>".to_owned()],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::File,
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_bytes: 1 << 30,
        ..Config::default()
    }
}

async fn pull(consumer: &PullConsumer, max: usize, wait: Option<Duration>) -> Result<Vec<Mail>, BusError> {
    let stream_error = |error: &dyn std::fmt::Display| BusError::Stream(error.to_string());
    let batch = match wait {
        Some(wait) => consumer.batch().max_messages(max).expires(wait).messages().await,
        None => consumer.fetch().max_messages(max).messages().await,
    };
    let mut batch = batch.map_err(|error| stream_error(&error))?;
    let mut mails = Vec::new();
    while let Some(message) = batch.next().await {
        let message = message.map_err(|error| stream_error(&error))?;
        let info = message.info().map_err(|error| stream_error(&error))?;
        let id = i64::try_from(info.stream_sequence).unwrap_or(i64::MAX);
        match serde_json::from_slice(&message.payload) {
            Ok(message) => mails.push(Mail { id, message }),
            Err(error) => tracing::error!(%error, mail.id = id, "a mailbox message cannot be read"),
        }
    }
    Ok(mails)
}

fn subject(agent: AgentId, key: &str) -> String {
    format!("mail.agent.{agent}.{key}")
}

fn consumer_name(agent: AgentId) -> String {
    format!("agent-{agent}")
}

struct PostError {
    is_missing: bool,
    reason: String,
}

impl PostError {
    fn from_publish(error: async_nats::jetstream::context::PublishError) -> Self {
        Self { is_missing: error.kind() == PublishErrorKind::StreamNotFound, reason: error.to_string() }
    }
}

impl From<PostError> for BusError {
    fn from(error: PostError) -> Self {
        Self::Publish(error.reason)
    }
}

fn is_posted_already(error: &async_nats::jetstream::context::PublishError) -> bool {
    use std::error::Error as _;
    error
        .source()
        .and_then(|source| source.downcast_ref::<async_nats::jetstream::Error>())
        .is_some_and(|error| error.error_code().0 == MAX_PER_SUBJECT_EXCEEDED)
}
