use serde_json::value::RawValue;
use signalbox_domain::kernel::{CommandOutcome, Decider, Rejection};
use signalbox_event_store::{Appender, ExecuteError, Execution, execute};
use signalbox_messaging::{CommandMessage, CommandReply};
use sqlx::PgPool;

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
        let execution = Execution {
            aggregate_id: message.aggregate_id,
            expected_version: message.expected_version,
            metadata: message.metadata,
            command,
        };
        reply(execute::<D>(&self.pool, &self.appender, execution).await)
    }
}

/// The typed command of a message for aggregate `D`.
pub(crate) fn parse<D: Decider>(command: &RawValue) -> Result<D::Command, CommandReply> {
    serde_json::from_str(command.get()).map_err(|error| {
        tracing::error!(%error, aggregate.type = D::TYPE, "a command cannot be read");
        CommandReply::Rejected(Rejection::invalid("unreadable_command", "The command cannot be read."))
    })
}

/// The answer to a command for an aggregate that this program does not know.
pub(crate) fn unknown(message: &CommandMessage) -> CommandReply {
    tracing::error!(aggregate.type = message.aggregate_type, "a command for an unknown aggregate");
    CommandReply::Rejected(Rejection::invalid("unknown_aggregate", "The command is not known."))
}

/// The answer when the database failed before anything was decided.
pub(crate) fn unavailable(error: &sqlx::Error) -> CommandReply {
    tracing::error!(%error, "a command could not be prepared");
    CommandReply::Rejected(Rejection::unavailable("The database does not answer."))
}

fn reply(result: Result<CommandOutcome, ExecuteError>) -> CommandReply {
    match result {
        Ok(outcome) => CommandReply::Done(outcome),
        Err(ExecuteError::Rejected(rejection)) => CommandReply::Rejected(rejection),
        Err(ExecuteError::Unavailable(reason)) => {
            tracing::error!(reason, "a command was not carried out");
            CommandReply::Rejected(Rejection::unavailable("The database does not answer."))
        }
        Err(ExecuteError::Unreadable(reason)) => {
            tracing::error!(reason, "an aggregate cannot be loaded");
            CommandReply::Rejected(Rejection::unreadable_history())
        }
    }
}
