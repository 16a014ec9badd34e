use std::{
    future::Future,
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_nats::{HeaderMap, Message, Request, RequestError, RequestErrorKind};
use bytes::Bytes;
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use signalbox_boxed::boxed;
use signalbox_domain::kernel::{CommandOutcome, Decider, ErrorKind, Metadata, Rejection};
use signalbox_metrics::metrics;
use signalbox_telemetry::current;
use tokio::{
    sync::Semaphore,
    time::{Instant, sleep},
};
use uuid::Uuid;

use crate::{
    Bus, BusError,
    trace::{answering, note, sending, trace_headers},
};

/// Bytes that subject and headers of a command have at most.
const HEADERS: usize = 1024;
/// How long a sender keeps asking before it gives up.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time limit of one request.
const REQUEST: Duration = Duration::from_secs(3);
/// Commands that one process carries out at the same time; more wait on the bus.
const CONCURRENT: usize = 512;

/// A command on the bus.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandMessage {
    /// Type of the aggregate.
    pub aggregate_type: String,
    /// Key of the aggregate.
    pub aggregate_id: Uuid,
    /// Version that the sender insists on.
    pub expected_version: Option<i64>,
    pub metadata: Metadata,
    /// The aggregate's command, which its handler reads.
    pub command: Box<RawValue>,
}

/// The answer to a command.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandReply {
    /// It was carried out, now or before.
    Done(CommandOutcome),
    /// It was not.
    Rejected(Rejection),
}

impl CommandReply {
    fn outcome(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Rejected(rejection) if rejection.kind == ErrorKind::Unavailable => "unavailable",
            Self::Rejected(_) => "rejected",
        }
    }
}

impl Bus {
    /// Sends `command` to the aggregate `id` and waits for the outcome. Unanswered commands are sent again with the
    /// same command id, which the log recognises.
    ///
    /// # Errors
    /// The [`Rejection`]; of kind `Unavailable` if no answer arrived in time. Then it is unknown whether the command
    /// was carried out.
    pub async fn send<D: Decider>(
        &self,
        id: Uuid,
        expected_version: Option<i64>,
        metadata: &Metadata,
        command: &D::Command,
    ) -> Result<CommandOutcome, Rejection> {
        let command = to_raw_value(command).map_err(|error| unreadable(&error))?;
        let message = CommandMessage {
            aggregate_type: D::TYPE.to_owned(),
            aggregate_id: id,
            expected_version,
            metadata: metadata.clone(),
            command,
        };
        self.send_message(D::CONTEXT, message).await
    }

    /// The same for every aggregate, so that it is compiled once.
    #[boxed]
    async fn send_message(
        &self,
        context: &'static str,
        mut message: CommandMessage,
    ) -> Result<CommandOutcome, Rejection> {
        let subject = format!("cmd.{context}");
        let mut span = sending(&subject, message.metadata.traceparent.clone().or_else(current).as_deref());
        span.set_with("signalbox.aggregate.type", || message.aggregate_type.clone());
        span.set_with("signalbox.aggregate.id", || message.aggregate_id.to_string());
        message.metadata.traceparent = span.traceparent().or(message.metadata.traceparent);
        let headers = trace_headers(message.metadata.traceparent.as_deref());
        let payload = serde_json::to_vec(&message).map(Bytes::from).map_err(|error| unreadable(&error))?;
        let sent = if payload.len() > self.client.server_info().max_payload.saturating_sub(HEADERS) {
            // The server would end the connection; asking again changes nothing.
            Err(Rejection::invalid("too_large", "The change is larger than a message may be: divide it."))
        } else {
            let sent = self.until_carried_out(&message.aggregate_type, subject, payload, headers).await;
            if sent.as_ref().err().is_none_or(|rejection| rejection.kind != ErrorKind::Unavailable) {
                *self.answered.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some(std::time::Instant::now());
            }
            sent
        };
        if let Err(rejection) = &sent {
            note(&mut span, rejection);
        }
        sent
    }

    async fn until_carried_out(
        &self,
        aggregate_type: &str,
        subject: String,
        payload: Bytes,
        headers: Option<HeaderMap>,
    ) -> Result<CommandOutcome, Rejection> {
        let deadline = Instant::now() + DEADLINE;
        let mut backoff = Duration::from_millis(20);
        let mut connections = self.connections();
        loop {
            connections.mark_unchanged();
            let request = Request {
                payload: Some(payload.clone()),
                headers: headers.clone(),
                timeout: Some(Some(REQUEST)),
                inbox: None,
            };
            let asked = self.client.send_request(subject.clone(), request);
            let reason = tokio::select! {
                answer = asked => match outcome(answer)? {
                    Ok(outcome) => return Ok(outcome),
                    Err(reason) => reason,
                },
                // With the server, the question or its answer may have been lost.
                Ok(()) = connections.changed() => Unanswered::Lost("the connection to NATS was lost".to_owned()),
            };
            if Instant::now() + backoff >= deadline {
                tracing::error!(%reason, aggregate.type = aggregate_type, "a command was not carried out");
                return Err(reason.rejection());
            }
            sleep(backoff).await;
            backoff = (backoff * 2).min(Duration::from_millis(500));
        }
    }

    /// Answers the commands of `context`, shared with every other process that does. Runs until the bus closes.
    ///
    /// # Errors
    /// [`BusError::Stream`] when the subscription is refused.
    pub async fn serve<H, F>(&self, context: &str, handle: H) -> Result<(), BusError>
    where
        H: Fn(CommandMessage) -> F + Send + Sync + 'static,
        F: Future<Output = CommandReply> + Send,
    {
        let subject = format!("cmd.{context}");
        let subscribed = self.client.queue_subscribe(subject, "commands".to_owned()).await;
        let mut messages = subscribed.map_err(|error| BusError::Stream(error.to_string()))?;
        let (handle, places) = (Arc::new(handle), Arc::new(Semaphore::new(CONCURRENT)));
        let context: Arc<str> = context.into();
        while let Some(message) = messages.next().await {
            let Ok(place) = places.clone().acquire_owned().await else { break };
            let (bus, handle, context) = (self.clone(), handle.clone(), context.clone());
            tokio::spawn(async move {
                bus.answer(&context, message, &*handle).await;
                drop(place);
            });
        }
        Ok(())
    }

    async fn answer<H, F>(&self, context: &str, message: Message, handle: &H)
    where
        H: Fn(CommandMessage) -> F,
        F: Future<Output = CommandReply>,
    {
        let Some(inbox) = message.reply else { return };
        let begun = Instant::now();
        let reply = match serde_json::from_slice(&message.payload) {
            Ok(command) => carry_out(context, command, handle).await,
            Err(error) => CommandReply::Rejected(unreadable(&error)),
        };
        metrics().command(context, reply.outcome(), begun.elapsed());
        let Ok(payload) = serde_json::to_vec(&reply) else { return };
        if let Err(error) = self.client.publish(inbox, payload.into()).await {
            tracing::warn!(%error, "the answer to a command was not sent; its sender asks again");
        }
    }
}

/// Lets `handle` carry out `command`. Its events name the command as their cause.
async fn carry_out<H, F>(context: &str, mut command: CommandMessage, handle: &H) -> CommandReply
where
    H: Fn(CommandMessage) -> F,
    F: Future<Output = CommandReply>,
{
    let mut span = answering(format_args!("cmd.{context}"), command.metadata.traceparent.as_deref());
    span.set_with("signalbox.aggregate.type", || command.aggregate_type.clone());
    span.set_with("signalbox.aggregate.id", || command.aggregate_id.to_string());
    span.set_with("signalbox.command.id", || command.metadata.command_id.to_string());
    command.metadata.traceparent = span.traceparent().or(command.metadata.traceparent);
    let reply = handle(command).await;
    match &reply {
        CommandReply::Done(outcome) => {
            span.set_with("signalbox.log.position", || outcome.position.unwrap_or_default());
        }
        CommandReply::Rejected(rejection) => note(&mut span, rejection),
    }
    reply
}

/// Why a command is sent again.
#[derive(Debug, thiserror::Error)]
enum Unanswered {
    #[error("{0}")]
    Lost(String),
    #[error("the database's disk is full")]
    DatabaseFull,
    /// While processes are replaced, the next handler may be one that knows it.
    #[error("a command handler of another release does not know the command: {0}")]
    Unknown(String),
    /// The same.
    #[error("a command handler of another release does not know an event of the resource")]
    NewerHistory,
}

impl Unanswered {
    fn rejection(&self) -> Rejection {
        match self {
            Self::Lost(_) => {
                Rejection::unavailable("The service cannot take changes now: try again in a moment.")
            }
            Self::DatabaseFull => Rejection::database_full(),
            Self::Unknown(_) => Rejection::unavailable(
                "Processes of another release do not know this change: try again when all processes of the service have been \
                 upgraded.",
            ),
            Self::NewerHistory => Rejection::newer_history(),
        }
    }
}

/// The outcome of a command, or the reason to send it again.
///
/// # Errors
/// The [`Rejection`] of a command that was refused for good.
fn outcome(answer: Result<Message, RequestError>) -> Result<Result<CommandOutcome, Unanswered>, Rejection> {
    let message = match answer {
        Ok(message) => message,
        Err(error) => {
            return Ok(Err(Unanswered::Lost(match error.kind() {
                RequestErrorKind::NoResponders => "no command handler runs".to_owned(),
                RequestErrorKind::TimedOut => "no command handler answered".to_owned(),
                _ => error.to_string(),
            })));
        }
    };
    match serde_json::from_slice(&message.payload).map_err(|error| unreadable(&error))? {
        CommandReply::Done(outcome) => Ok(Ok(outcome)),
        CommandReply::Rejected(rejection) if rejection.is_newer_history() => {
            Ok(Err(Unanswered::NewerHistory))
        }
        CommandReply::Rejected(rejection) if rejection.is_database_full() => {
            Ok(Err(Unanswered::DatabaseFull))
        }
        CommandReply::Rejected(rejection) if rejection.kind == ErrorKind::Unavailable => {
            Ok(Err(Unanswered::Lost(rejection.message)))
        }
        CommandReply::Rejected(rejection) if rejection.is_unknown_command() => {
            Ok(Err(Unanswered::Unknown(rejection.message)))
        }
        CommandReply::Rejected(rejection) => Err(rejection),
    }
}

fn unreadable(error: &serde_json::Error) -> Rejection {
    tracing::error!(%error, "a command cannot be read: do gateway and command handler have the same version?");
    Rejection::unreadable_command()
}
