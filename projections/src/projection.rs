use std::future::Future;

use signalbox_event_store::{DecodeError, RecordedEvent};
use sqlx::PgConnection;

/// A group of read-model tables that is folded from the log under one checkpoint.
pub trait Projection: Send + Sync + 'static {
    /// Name of its checkpoint; one per context.
    const NAME: &'static str;
    /// Its tables.
    const TABLES: &'static [&'static str];
    /// Aggregate types whose events it folds.
    const AGGREGATES: &'static [&'static str];

    /// Those rows of its tables that are in memory.
    type Rows: Rows;
}

/// Rows of a projection's tables in memory, and how events change them.
pub trait Rows: Default + Send {
    /// An event of one of [`Projection::AGGREGATES`].
    type Event: Send + Sync;

    /// `recorded` as what it is.
    ///
    /// # Errors
    /// [`DecodeError`].
    fn decode(recorded: &RecordedEvent) -> Result<Self::Event, DecodeError>;

    /// Reads those rows that `events` change and that are not here from the tables in `schema`.
    fn load(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[(&RecordedEvent, Self::Event)],
    ) -> impl Future<Output = Result<(), ApplyError>> + Send;

    /// Changes the rows that are here as `event` says.
    fn apply(&mut self, recorded: &RecordedEvent, event: Self::Event);

    /// Folds `events` (only of [`Projection::AGGREGATES`], in log order), reading rows that are not here from the tables
    /// in `schema`; gives back the events that it could not apply.
    fn fold(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        events: &[&RecordedEvent],
    ) -> impl Future<Output = Result<Vec<Poison>, ApplyError>> + Send {
        async move {
            let (decoded, poisons) = decode_all(events, Self::decode);
            self.load(connection, schema, &decoded).await?;
            for (recorded, event) in decoded {
                self.apply(recorded, event);
            }
            Ok(poisons)
        }
    }

    /// Writes what has changed into the tables in `schema`, all of it when `keep` is 0; otherwise, of a table with more
    /// than `keep` rows in memory, what the last fold did not touch.
    fn write(
        &mut self,
        connection: &mut PgConnection,
        schema: &str,
        keep: usize,
    ) -> impl Future<Output = Result<(), ApplyError>> + Send;
}

/// What `decode` makes of each event, and those of which it makes nothing.
fn decode_all<'e, E>(
    events: &[&'e RecordedEvent],
    decode: impl Fn(&RecordedEvent) -> Result<E, DecodeError>,
) -> (Vec<(&'e RecordedEvent, E)>, Vec<Poison>) {
    let (mut decoded, mut poisons) = (Vec::with_capacity(events.len()), Vec::new());
    for recorded in events {
        match decode(recorded) {
            Ok(event) => decoded.push((*recorded, event)),
            Err(error) => poisons.push(Poison { position: recorded.position, error: error.to_string() }),
        }
    }
    (decoded, poisons)
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
