//! Streams that a projection has set aside: from their first event that it cannot apply, they wait.
//!
//! The other streams continue. The withdrawals of a waiting stream (a session, a token, a role, a resource) are
//! applied all the same. [`retry`] applies the waiting events in order; the runner does it by itself, at a bounded
//! rate. See ADR 29.

mod retry;
mod table;
mod trial;

use std::collections::HashMap;

use signalbox_event_store::{EventKey, LogSlice, RecordedEvent};
use sqlx::PgConnection;

pub use retry::{Retried, retry};
pub use table::{
    SetAside, begin_skipped, due_skipped, forget_skipped, is_set_aside, note_waiting, report_waiting,
    retry_soon, set_aside_counts, set_aside_streams, skipping_followers,
};
pub(crate) use table::{due_retry, has_any, held_of, note, report};
pub(crate) use trial::Trial;

use retry::apply_each;

use crate::{Poison, Projection, Rows, withdrawals::withdrawals_of};

/// Events that a retry reads, and applies, at a time.
const BATCH: i64 = 500;

/// The first positions of streams that are set aside.
#[derive(Debug, Default)]
pub(crate) struct Held(HashMap<(String, String), i64>);

impl Held {
    pub(crate) fn insert(&mut self, key: &EventKey) {
        self.0.entry((key.aggregate_type.clone(), key.aggregate_id.clone())).or_insert(key.position);
    }

    fn holds(&self, key: &EventKey) -> bool {
        let stream = (key.aggregate_type.clone(), key.aggregate_id.clone());
        self.0.get(&stream).is_some_and(|first| *first <= key.position)
    }
}

/// Events of a projection, sorted by whether they can be applied.
pub(crate) struct Sorted<'e, E> {
    /// They are applied.
    pub(crate) applicable: Vec<(&'e RecordedEvent, E)>,
    /// Events that set their stream aside.
    pub(crate) poisons: Vec<Poison>,
    /// They wait in streams that were set aside before them.
    pub(crate) waiting: Vec<EventKey>,
}

impl<E> Sorted<'_, E> {
    fn set_aside(&mut self, held: &mut Held, key: EventKey, error: String) {
        if held.holds(&key) {
            return self.waiting.push(key);
        }
        held.insert(&key);
        self.poisons.push(Poison { key, error });
    }
}

/// Sorts the events of `P` in `slice`; streams whose events cannot be decoded are added to `held`, and that of
/// `refused`, which could not be applied.
pub(crate) fn sort_out<'e, P: Projection>(
    slice: &'e LogSlice,
    held: &mut Held,
    refused: Option<&Poison>,
) -> Sorted<'e, <P::Rows as Rows>::Event> {
    let mut sorted = Sorted { applicable: Vec::new(), poisons: Vec::new(), waiting: Vec::new() };
    let is_read = |aggregate: &str| P::AGGREGATES.contains(&aggregate);
    let mut unreadable =
        slice.unreadable.iter().filter(|event| is_read(&event.key.aggregate_type)).peekable();
    let mut readable = slice.events.iter().filter(|event| is_read(&event.aggregate_type)).peekable();
    loop {
        let next = readable.peek().map_or(i64::MAX, |event| event.position);
        if let Some(event) = unreadable.next_if(|event| event.key.position < next) {
            sorted.set_aside(held, event.key.clone(), event.error.clone());
            continue;
        }
        let Some(recorded) = readable.next() else { return sorted };
        let refused = refused.filter(|refused| refused.key.position == recorded.position);
        // Nearly always nothing is held, and no key has to be made.
        if !held.0.is_empty() && held.holds(&recorded.into()) {
            sorted.waiting.push(recorded.into());
            continue;
        }
        match (refused, P::Rows::decode(recorded)) {
            (None, Ok(event)) => sorted.applicable.push((recorded, event)),
            (Some(refused), _) => sorted.set_aside(held, recorded.into(), refused.error.clone()),
            (None, Err(error)) => sorted.set_aside(held, recorded.into(), error.to_string()),
        }
    }
}

/// Applies the withdrawals of the event `key`.
pub(crate) async fn withdraw(
    connection: &mut PgConnection,
    schema: &str,
    key: &EventKey,
) -> Result<(), sqlx::Error> {
    let Some(id) = key.id() else { return Ok(()) };
    for statement in withdrawals_of(&key.event_type) {
        let statement = statement.replace("{schema}", schema);
        sqlx::query(&statement).bind(id).bind(key.position).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Applies the withdrawals of the events of `sorted` that are not applied.
pub(crate) async fn withdraw_all(
    connection: &mut PgConnection,
    schema: &str,
    poisons: &[Poison],
    waiting: &[EventKey],
) -> Result<(), sqlx::Error> {
    let mut keys: Vec<_> = poisons.iter().map(|poison| &poison.key).chain(waiting).collect();
    keys.sort_unstable_by_key(|key| key.position);
    for key in keys {
        withdraw(connection, schema, key).await?;
    }
    Ok(())
}
