use std::{any::Any, panic::AssertUnwindSafe};

use async_trait::async_trait;
use futures::FutureExt;
use signalbox_database::is_refusal;
use signalbox_domain::catalog::Context;
use signalbox_event_store::{DecodeError, EventKey, RecordedEvent};
use sqlx::PgConnection;

/// A group of read-model tables that is folded from the log under one checkpoint.
pub trait Projection: Send + Sync + 'static {
    /// The context whose aggregates it folds.
    const CONTEXT: Context;
    /// Name of its checkpoint.
    const NAME: &'static str = Self::CONTEXT.word();
    /// Its tables.
    const TABLES: &'static [&'static str];
    /// Aggregate types whose events it folds.
    const AGGREGATES: &'static [&'static str] = Self::CONTEXT.aggregates();

    /// Those rows of its tables that are in memory.
    type Rows: Rows;
}

/// Rows of a projection's tables in memory, and how events change them.
#[async_trait]
pub trait Rows: Default + Send {
    /// An event of one of [`Projection::AGGREGATES`].
    type Event: Send + Sync;

    /// `recorded` as what it is.
    ///
    /// # Errors
    /// [`DecodeError`].
    fn decode(recorded: &RecordedEvent) -> Result<Self::Event, DecodeError>;

    /// Reads those rows that `events` change and that are not here from the tables in `schema`.
    async fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, Self::Event)],
    ) -> Result<(), ApplyError>;

    /// Applies `event` to the loaded rows.
    fn apply(&mut self, recorded: &RecordedEvent, event: Self::Event);

    /// Folds `events` (only of [`Projection::AGGREGATES`], in log order), reading rows that are not here from the tables
    /// in `schema`.
    async fn fold(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: Vec<(&RecordedEvent, Self::Event)>,
    ) -> Result<(), ApplyError> {
        self.load(connection, schema, &events).await?;
        for (recorded, event) in events {
            self.apply(recorded, event);
        }
        Ok(())
    }

    /// Writes changed rows into the tables in `schema`, all of them if `keep` is 0; otherwise, of a table with more
    /// than `keep` rows in memory, those that the last fold did not touch.
    async fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> Result<(), ApplyError>;
}

/// An event that cannot be applied, or the first of a stream that waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// Which event it is.
    pub key: EventKey,
    /// Why it cannot be applied.
    pub error: String,
}

/// A fold that could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The database refused or did not answer.
    #[error("the read model cannot be written: {0}")]
    Database(#[from] sqlx::Error),
    /// A row does not serialise.
    #[error("a row of {table} cannot be written: {source}")]
    Row {
        /// Its table.
        table: &'static str,
        /// Why.
        source: serde_json::Error,
    },
    /// The fold panicked.
    #[error("the fold panicked: {0}")]
    Panic(String),
}

impl ApplyError {
    /// Whether a statement exceeded its limit: with fewer events it may not.
    pub(crate) fn is_timeout(&self) -> bool {
        const QUERY_CANCELED: &str = "57014";
        let Self::Database(error) = self else { return false };
        error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == QUERY_CANCELED)
    }

    /// Whether the events are the cause, so that others may be applied; otherwise the database is.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Database(error) => is_refusal(error),
            Self::Row { .. } | Self::Panic(_) => true,
        }
    }
}

/// The result of `work`, or its panic as an error.
pub(crate) async fn catch_panic<T>(
    work: impl Future<Output = Result<T, ApplyError>>,
) -> Result<T, ApplyError> {
    let caught = AssertUnwindSafe(work).catch_unwind().await;
    caught.unwrap_or_else(|panic| Err(ApplyError::Panic(panic_text(panic.as_ref()))))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
