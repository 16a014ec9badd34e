//! Mailboxes: one JetStream stream, a subject per agent and message key, a durable consumer per agent.
//!
//! The subject `mail.agent.<agent>.<key>` holds at most one message, so posting twice is one message. A fetched
//! message is held back for 30 s and then given out again, until it is acknowledged by its id from any gateway.
//! For correctness nothing depends on it: the reconciler posts again what the log says is outstanding.

use signalbox_boxed::boxed;
use std::time::Duration;

use async_nats::jetstream::{
    self,
    consumer::{AckPolicy, PullConsumer, pull},
    context::PublishErrorKind,
    stream::{Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType, Stream},
};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use signalbox_domain::kernel::AgentId;
use tokio::time::{Instant, timeout_at};

use crate::{Bus, BusError};

/// Name of the stream.
pub(crate) const STREAM: &str = "MAIL";
/// How long a delivered message is held back before it is delivered again.
const HOLD_BACK: Duration = Duration::from_secs(30);
/// How long JetStream may take to answer, beside the time that it is asked to wait.
const ANSWER: Duration = Duration::from_secs(5);
/// A consumer of an agent that was away for longer is made again.
const FORGET_CONSUMER: Duration = Duration::from_secs(7 * 24 * 3600);
/// JetStream's code for "this subject holds its one message already".
const MAX_PER_SUBJECT_EXCEEDED: u64 = 10077;

/// A message that waits for its agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Waiting {
    id: u64,
    /// The key under which it was posted.
    pub key: String,
}

/// A message to an agent.
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
    /// The key that it was posted under.
    pub key: String,
    pub message: MailMessage,
}

impl From<&Mail> for Waiting {
    fn from(mail: &Mail) -> Self {
        Self { id: mail.id.unsigned_abs(), key: mail.key.clone() }
    }
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
    #[boxed]
    pub async fn open(bus: &Bus) -> Result<Self, BusError> {
        let mailbox = Self { bus: bus.clone() };
        bus.open_stream_patiently(stream_config()).await?;
        Ok(mailbox)
    }

    /// Leaves `message` for `agent` under `key` (letters, digits, `-`, `.`), once while it is not taken.
    ///
    /// # Errors
    /// [`BusError::Publish`] when it was not stored.
    #[boxed]
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
    #[boxed]
    pub async fn size(&self) -> Result<u64, BusError> {
        let mut stream = self.stream().await?;
        let info = stream.info().await.map_err(stream_error)?;
        Ok(info.state.messages)
    }

    /// Up to `max` messages for `agent`; waits at most `wait` for the first one.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer; ask again.
    #[boxed]
    pub async fn fetch(&self, agent: AgentId, max: usize, wait: Duration) -> Result<Vec<Mail>, BusError> {
        let consumer = self.consumer(agent).await?;
        let mut mails = pull(&consumer, 1, Some(wait)).await?;
        if !mails.is_empty() && max > 1 {
            match pull(&consumer, max - 1, None).await {
                Ok(more) => mails.extend(more),
                // The first message is not held back for the others, which a later call gets.
                Err(error) => tracing::debug!(%agent, %error, "more messages may wait in a mailbox"),
            }
        }
        Ok(mails)
    }

    /// Those of the messages `ids` that wait for `agent`, with their keys; ids that are unknown or another agent's are ignored.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer; ask again.
    #[boxed]
    pub async fn waiting(&self, agent: AgentId, ids: &[i64]) -> Result<Vec<Waiting>, BusError> {
        let stream = self.stream().await?;
        let own = subject(agent, "");
        let mut found = Vec::new();
        for id in ids.iter().filter_map(|id| u64::try_from(*id).ok()).filter(|id| *id > 0) {
            match stream.get_raw_message(id).await {
                Ok(message) => {
                    if let Some(key) = message.subject.strip_prefix(&own) {
                        found.push(Waiting { id, key: key.to_owned() });
                    }
                }
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {}
                Err(error) => return Err(BusError::Stream(error.to_string())),
            }
        }
        Ok(found)
    }

    /// Removes these messages; those that are removed already are none to it.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer; some may be removed. Ask again.
    #[boxed]
    pub async fn remove_waiting(&self, messages: &[Waiting]) -> Result<(), BusError> {
        let stream = self.stream().await?;
        for Waiting { id, .. } in messages {
            let Err(refused) = stream.delete_message(*id).await else { continue };
            match stream.get_raw_message(*id).await {
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {}
                // Not the next ones: each would wait as long for a silent server.
                _ => return Err(BusError::Stream(refused.to_string())),
            }
        }
        Ok(())
    }

    /// The message `key` of `agent`, if it still waits.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    #[boxed]
    pub async fn find(&self, agent: AgentId, key: &str) -> Result<Option<Waiting>, BusError> {
        match self.stream().await?.get_last_raw_message_by_subject(&subject(agent, key)).await {
            Ok(message) => Ok(Some(Waiting { id: message.sequence, key: key.to_owned() })),
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Ok(None),
            Err(error) => Err(stream_error(error)),
        }
    }

    /// Removes the message `key` of `agent`, if it still waits.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    #[boxed]
    pub async fn withdraw(&self, agent: AgentId, key: &str) -> Result<(), BusError> {
        // By its id: a purge of one subject moves the acknowledgement floor of its consumer past messages that are held back
        // before it, which nats-server 2.14 then never gives out again.
        let found = self.find(agent, key).await?;
        self.remove_waiting(found.as_slice()).await
    }

    /// Removes everything for `agent`.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream does not answer.
    #[boxed]
    pub async fn remove(&self, agent: AgentId) -> Result<(), BusError> {
        let stream = self.stream().await?;
        let purged = stream.purge().filter(format!("mail.agent.{agent}.>")).await;
        purged.map_err(stream_error)?;
        // It may never have connected, and then has no consumer.
        let _ = stream.delete_consumer(&consumer_name(agent)).await;
        Ok(())
    }

    /// Makes the stream again after JetStream has lost it.
    ///
    /// # Errors
    /// [`BusError::Stream`] when JetStream refuses.
    #[boxed]
    pub async fn ensure(&self) -> Result<(), BusError> {
        self.bus.open_stream(stream_config()).await.map(|_| ())
    }

    async fn publish(&self, subject: &str, payload: Vec<u8>) -> Result<(), PostError> {
        let sent = self.bus.jetstream.publish(subject.to_owned(), payload.into()).await;
        let stored = sent.map_err(PostError::from_publish)?.await;
        self.bus.note_stored(stream_config(), &stored).await;
        match stored {
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
                made.map_err(stream_error)
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

fn stream_error(error: impl ToString) -> BusError {
    BusError::Stream(error.to_string())
}

/// Without `wait`, the messages that are there now.
async fn pull(consumer: &PullConsumer, max: usize, wait: Option<Duration>) -> Result<Vec<Mail>, BusError> {
    let deadline = Instant::now() + wait.unwrap_or_default() + ANSWER;
    let batch = async {
        match wait {
            Some(wait) => consumer.batch().max_messages(max).expires(wait).messages().await,
            // With an expiry it would wait for a first message.
            None => consumer.fetch().max_messages(max).messages().await,
        }
    };
    let batch = timeout_at(deadline, batch).await.map_err(stream_error)?;
    gather(batch.map_err(stream_error)?, deadline).await
}

/// The messages of `batch` that arrive until `deadline`. The client library waits for the end of a batch without limit, and
/// that end may be lost while the connection stays.
async fn gather(
    mut batch: impl futures::Stream<Item = Result<jetstream::Message, async_nats::Error>> + Unpin,
    deadline: Instant,
) -> Result<Vec<Mail>, BusError> {
    let mut mails = Vec::new();
    while let Ok(Some(message)) = timeout_at(deadline, batch.next()).await {
        let message = message.map_err(stream_error)?;
        let info = message.info().map_err(stream_error)?;
        let id = i64::try_from(info.stream_sequence).unwrap_or(i64::MAX);
        let key = message.subject.splitn(4, '.').nth(3).unwrap_or_default().to_owned();
        match serde_json::from_slice(&message.payload) {
            Ok(message) => mails.push(Mail { id, key, message }),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_batch_whose_end_is_lost_is_given_up() {
        let deadline = Instant::now() + Duration::from_millis(20);
        let gathered = tokio::time::timeout(ANSWER, gather(futures::stream::pending(), deadline)).await;
        assert!(gathered.unwrap().unwrap().is_empty());
    }
}
