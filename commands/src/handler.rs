use std::pin::Pin;

use serde_json::value::RawValue;
use signalbox_database::report_fault;
use signalbox_domain::{
    catalog::{Aggregate, Context, Visitor},
    kernel::{CommandOutcome, Decider, Rejection},
};
use signalbox_event_store::{Appender, ExecuteError, Execution, execute};
use signalbox_messaging::{CommandMessage, CommandReply};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{locks::Locks, numbers::Numbers};

/// Shared dependencies of all handlers. Clones share them.
#[derive(Debug, Clone)]
pub struct Handler {
    pub(crate) pool: PgPool,
    appender: Appender,
    locks: Locks,
    pub(crate) numbers: Numbers,
}

impl Handler {
    /// A handler that appends through `appender`.
    pub fn new(pool: PgPool, appender: Appender) -> Self {
        Self { numbers: Numbers::new(pool.clone()), pool, appender, locks: Locks::default() }
    }

    /// Runs the command of `message` against an aggregate `D`.
    pub(crate) async fn run<D: Decider>(&self, message: CommandMessage, command: D::Command) -> CommandReply {
        let _alone = self.locks.lock(message.aggregate_id).await;
        let aggregate_id = message.aggregate_id;
        let execution = Execution {
            aggregate_id,
            expected_version: message.expected_version,
            metadata: message.metadata,
            command,
        };
        let result = execute::<D>(&self.pool, &self.appender, execution).await;
        match &result {
            Err(ExecuteError::Unreadable(reason)) => {
                let advice = "Run the version that recorded it, or restore its events from a backup.";
                self.report_unreadable(D::TYPE, aggregate_id, reason, advice).await;
            }
            Err(ExecuteError::Newer(reason)) => {
                let advice = "A newer release recorded it: run that one in all processes.";
                self.report_unreadable(D::TYPE, aggregate_id, reason, advice).await;
            }
            Ok(_)
            | Err(ExecuteError::Rejected(_) | ExecuteError::Unavailable(_) | ExecuteError::DiskFull) => {}
        }
        reply(result)
    }

    /// Runs the command of `message` as it was sent, if its aggregate is one of `context`.
    pub(crate) async fn run_plain(&self, context: Context, message: CommandMessage) -> CommandReply {
        match Aggregate::of_word(&message.aggregate_type) {
            Some(aggregate) if aggregate.context() == context => {
                aggregate.accept(Plain { handler: self, message }).await
            }
            _ => unknown(&message),
        }
    }

    /// The fault lapses some minutes after the last command.
    async fn report_unreadable(&self, kind: &str, id: Uuid, reason: &str, advice: &str) {
        let part = format!("commands.{kind}");
        let reason = format!(
            "the history of {id} cannot be read by this version, so it refuses every command: {reason}. {advice}"
        );
        if let Err(error) = report_fault(&self.pool, &part, &reason).await {
            tracing::error!(%error, part, reason, "a fault was not reported");
        }
    }
}

/// A command that needs nothing that is read for it.
struct Plain<'a> {
    handler: &'a Handler,
    message: CommandMessage,
}

impl<'a> Visitor for Plain<'a> {
    type Output = Pin<Box<dyn Future<Output = CommandReply> + Send + 'a>>;

    fn visit<D: Decider>(self) -> Self::Output {
        let Self { handler, message } = self;
        Box::pin(async move {
            match parse::<D>(&message.command) {
                Ok(command) => handler.run::<D>(message, command).await,
                Err(refused) => refused,
            }
        })
    }
}

/// The typed command of a message for aggregate `D`.
pub(crate) fn parse<D: Decider>(command: &RawValue) -> Result<D::Command, CommandReply> {
    serde_json::from_str(command.get()).map_err(|error| {
        tracing::error!(%error, aggregate.type = D::TYPE, "a command cannot be read");
        CommandReply::Rejected(Rejection::unreadable_command())
    })
}

/// The answer to a command for an aggregate that this program does not know.
fn unknown(message: &CommandMessage) -> CommandReply {
    tracing::error!(aggregate.type = message.aggregate_type, "a command for an unknown aggregate");
    CommandReply::Rejected(Rejection::unknown_aggregate())
}

/// The answer when the database failed before anything was decided.
pub(crate) fn unavailable(error: &sqlx::Error) -> CommandReply {
    tracing::error!(%error, "a command could not be prepared");
    CommandReply::Rejected(Rejection::unavailable("The database does not answer."))
}

fn reply(result: Result<CommandOutcome, ExecuteError>) -> CommandReply {
    match result {
        Ok(outcome) => CommandReply::Done(outcome),
        Err(error) => CommandReply::Rejected(error.into()),
    }
}
