use std::future::Future;

use signalbox_event_store::RecordedEvent;
use sqlx::PgConnection;

/// A group of read-model tables that is folded from the log under one checkpoint.
pub trait Projection: Send + Sync + 'static {
    /// Name of its checkpoint; one per context.
    const NAME: &'static str;
    /// Its tables.
    const TABLES: &'static [&'static str];
    /// Aggregate types whose events it folds.
    const AGGREGATES: &'static [&'static str];

    /// Folds `events` (only of [`Projection::AGGREGATES`], in log order) into the tables in `schema`, and gives back
    /// those that it could not apply.
    fn apply(
        connection: &mut PgConnection,
        schema: &str,
        events: &[&RecordedEvent],
    ) -> impl Future<Output = Result<Vec<Poison>, ApplyError>> + Send;
}

/// An event that cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// Its place in the log.
    pub position: i64,
    /// What is wrong with it.
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
}
