use std::{collections::HashMap, sync::OnceLock};

use cqrs_es::{AggregateError, CqrsFramework};
use signalbox_domain::kernel::{CommandOutcome, Decider, Metadata, Rejection};
use sqlx::PgPool;
use uuid::Uuid;

use crate::{
    append::Appender,
    recorded::Unread,
    request::{AppendError, AppendOutcome},
    root::Root,
    store::{CommandStore, load},
};

/// How often a command is decided again after a conflict. While two processes have commands for one aggregate, about
/// every second attempt conflicts; this many in a row are very unlikely (ADR 25).
const MAX_RETRIES: u32 = 50;

/// A command on its way to an aggregate.
#[derive(Debug, Clone)]
pub struct Execution<C> {
    /// Key of the aggregate.
    pub aggregate_id: Uuid,
    /// Version that the caller has seen, if it insists on it.
    pub expected_version: Option<i64>,
    pub metadata: Metadata,
    /// The command itself.
    pub command: C,
}

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// The aggregate does not allow it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The log cannot be read or written; the same command may be sent again.
    #[error("the event log is unavailable: {0}")]
    Unavailable(String),
    /// The database has no space for events; the same command may be sent again.
    #[error("the database's disk is full")]
    DiskFull,
    /// The stream cannot be read by this program.
    #[error("the aggregate cannot be loaded: {0}")]
    Unreadable(String),
    /// The stream has an event of a newer release, whose programs can read it.
    #[error("the aggregate cannot be loaded: {0}")]
    Newer(String),
}

impl From<ExecuteError> for Rejection {
    fn from(error: ExecuteError) -> Self {
        match error {
            ExecuteError::Rejected(rejection) => rejection,
            ExecuteError::Unavailable(reason) => {
                tracing::error!(reason, "a command was not carried out");
                Self::unavailable("The database does not answer.")
            }
            ExecuteError::DiskFull => {
                tracing::error!("a command was not carried out: the database's disk is full");
                Self::database_full()
            }
            ExecuteError::Unreadable(reason) => {
                tracing::error!(reason, "an aggregate cannot be loaded");
                Self::unreadable_history()
            }
            ExecuteError::Newer(reason) => {
                tracing::warn!(reason, "a process of a newer release has to carry out a command");
                Self::newer_history()
            }
        }
    }
}

/// The aggregate `id` as the log has it.
///
/// # Errors
/// [`ExecuteError`], never of a rejection.
pub async fn state<D: Decider>(pool: &PgPool, id: Uuid) -> Result<D, ExecuteError> {
    let loaded = load::<D>(pool, id).await.map_err(|error| translate(AggregateError::from(error)))?;
    Ok(loaded.root.0)
}

/// Loads the aggregate, lets it decide, and appends what follows. A command that was carried out before gives its
/// first outcome again.
///
/// # Errors
/// [`ExecuteError`]; after [`ExecuteError::Unavailable`] it is unknown whether the command was carried out.
pub async fn execute<D: Decider>(
    pool: &PgPool,
    appender: &Appender,
    execution: Execution<D::Command>,
) -> Result<CommandOutcome, ExecuteError> {
    let Execution { aggregate_id, expected_version, metadata, command } = execution;
    let creates = expected_version.is_none() && creates::<D>(&command);
    for attempt in 0..=MAX_RETRIES {
        let outcome = OnceLock::new();
        let store = CommandStore {
            pool,
            appender,
            metadata: &metadata,
            expected: expected_version,
            is_new: creates && attempt == 0,
            outcome: &outcome,
            loaded: OnceLock::new(),
        };
        let framework = CqrsFramework::<Root<D>, _>::new(store, Vec::new(), ());
        let done =
            framework.execute_with_metadata(&aggregate_id.to_string(), command.clone(), HashMap::new()).await;
        match done {
            Ok(()) => {
                let appended = outcome.into_inner().map(outcome_of);
                return match appended {
                    Some(outcome) => Ok(outcome),
                    None => Ok(first_outcome(pool, metadata.command_id).await?.unwrap_or_default()),
                };
            }
            Err(AggregateError::AggregateConflict) => continue,
            Err(error) => {
                return first_outcome(pool, metadata.command_id).await?.ok_or_else(|| translate(error));
            }
        }
    }
    Err(Rejection::conflict("concurrent_changes", "The resource is being changed by others: try again.")
        .into())
}

/// Whether `command` makes an aggregate that does not exist yet. Then there is nothing to load, and if there is after all,
/// the append conflicts.
fn creates<D: Decider>(command: &D::Command) -> bool {
    D::default().decide(command.clone()).is_ok_and(|events| !events.is_empty())
}

/// A rejected command may be a repetition of one that was carried out, and whose own effect causes the rejection.
async fn first_outcome(pool: &PgPool, command_id: Uuid) -> Result<Option<CommandOutcome>, ExecuteError> {
    let row: Option<(i64, i64)> =
        sqlx::query_as("SELECT version, position FROM command_outcomes WHERE command_id = $1")
            .bind(command_id)
            .fetch_optional(pool)
            .await
            .map_err(|error| ExecuteError::Unavailable(error.to_string()))?;
    Ok(row.map(|(version, position)| CommandOutcome {
        version: Some(version),
        position: Some(position),
        repeated: true,
    }))
}

pub(crate) fn translate(error: AggregateError<Rejection>) -> ExecuteError {
    match error {
        AggregateError::UserError(rejection) => ExecuteError::Rejected(rejection),
        AggregateError::DatabaseConnectionError(error)
            if error.downcast_ref().is_some_and(|error| matches!(error, AppendError::DiskFull)) =>
        {
            ExecuteError::DiskFull
        }
        AggregateError::DatabaseConnectionError(error) => ExecuteError::Unavailable(error.to_string()),
        // `postgres-es` takes only broken sockets for connection errors, not a server that ends the connection.
        AggregateError::UnexpectedError(error) if error.is::<sqlx::Error>() => {
            ExecuteError::Unavailable(error.to_string())
        }
        AggregateError::DeserializationError(error)
            if error.downcast_ref::<Unread>().is_some_and(Unread::is_newer) =>
        {
            ExecuteError::Newer(error.to_string())
        }
        other => ExecuteError::Unreadable(other.to_string()),
    }
}

fn outcome_of(appended: AppendOutcome) -> CommandOutcome {
    CommandOutcome {
        version: Some(appended.version),
        position: Some(appended.position),
        repeated: appended.duplicate,
    }
}
