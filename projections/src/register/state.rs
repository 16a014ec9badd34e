use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use signalbox_boxed::boxed;
use signalbox_domain::{
    catalog::{Aggregate, Visitor},
    kernel::Decider,
};
use signalbox_event_store::{DecodeError, Moment, RecordedEvent, SearchError, read_stream_after};
use sqlx::PgPool;
use uuid::Uuid;

use super::redact;

/// Events read at a time.
pub(super) const BATCH: i64 = 1000;
/// Events that are folded for one answer at most.
pub(super) const MAX_EVENTS: i64 = 100_000;

/// An aggregate as it was after one of its events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamState {
    /// Sequence of its last event until then.
    pub version: i64,
    /// Position of that event.
    pub position: i64,
    /// When that event was recorded.
    pub recorded_at: DateTime<Utc>,
    /// The aggregate's state, without hashes and sealed secrets.
    pub state: Value,
}

/// Why there is no state.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The aggregate has too many events to be folded for an answer.
    #[error("the stream has more than {MAX_EVENTS} events until then: read its events instead")]
    TooLong,
    /// The database failed.
    #[error("the stream cannot be read: {0}")]
    Database(#[from] sqlx::Error),
    /// An event cannot be read.
    #[error(transparent)]
    Event(#[from] DecodeError),
    /// The events before that time cannot be found.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// The state cannot be shown.
    #[error("the state cannot be shown: {0}")]
    Shown(#[from] serde_json::Error),
}

/// The state of aggregate `id` of `aggregate_type` at `moment`; `None` if it had no event yet, or if the type does
/// not exist.
///
/// # Errors
/// [`StateError`].
#[boxed]
pub async fn stream_state(
    pool: &PgPool,
    aggregate_type: &str,
    id: Uuid,
    moment: Moment,
) -> Result<Option<StreamState>, StateError> {
    let Some(mut folding) = begin(aggregate_type) else { return Ok(None) };
    let mut last = None::<(i64, i64, DateTime<Utc>)>;
    loop {
        let version = last.map_or(0, |(version, ..)| version);
        let events = read_stream_after(pool, aggregate_type, id, version, moment, BATCH).await?;
        for event in &events {
            folding.fold(event)?;
            last = Some((event.sequence, event.position, event.recorded_at));
        }
        if (events.len() as i64) < BATCH {
            break;
        }
        if version + BATCH >= MAX_EVENTS {
            return Err(StateError::TooLong);
        }
    }
    let Some((version, position, recorded_at)) = last else { return Ok(None) };
    let mut state = folding.state()?;
    redact(&mut state);
    Ok(Some(StreamState { version, position, recorded_at, state }))
}

/// An aggregate whose type is known only at run time.
trait Folding: Send {
    fn fold(&mut self, event: &RecordedEvent) -> Result<(), DecodeError>;
    fn state(&self) -> Result<Value, serde_json::Error>;
}

struct Folded<D>(D);

impl<D: Decider> Folding for Folded<D> {
    fn fold(&mut self, event: &RecordedEvent) -> Result<(), DecodeError> {
        self.0.evolve(event.decode::<D>()?);
        Ok(())
    }

    fn state(&self) -> Result<Value, serde_json::Error> {
        serde_json::to_value(&self.0)
    }
}

fn begin(aggregate_type: &str) -> Option<Box<dyn Folding>> {
    Aggregate::of_word(aggregate_type).map(|aggregate| aggregate.accept(Begin))
}

/// Makes an aggregate without events.
struct Begin;

impl Visitor for Begin {
    type Output = Box<dyn Folding>;

    fn visit<D: Decider>(self) -> Box<dyn Folding> {
        Box::new(Folded(D::default()))
    }
}
