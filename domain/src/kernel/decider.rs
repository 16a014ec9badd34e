use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{Claim, ClaimOp, Event, Rejection};

/// A pure aggregate: `decide` turns a command into events, `evolve` folds an event into the state.
///
/// The event store wraps it as a `cqrs_es::Aggregate`.
pub trait Decider: Default + Clone + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Stable name of the aggregate in the log, e.g. `transfer`.
    const TYPE: &'static str;
    /// The context it belongs to, e.g. `transfer`; part of bus subjects.
    const CONTEXT: &'static str;
    /// Raised whenever the serialised state changes shape, so that older snapshots are ignored.
    const STATE_VERSION: i32;
    /// Events between two snapshots, where long streams make them pay; `None` for no snapshots.
    const SNAPSHOT_EVERY: Option<i64> = None;

    /// Whether the stream is one causal trace: each of the system's actions follows from the aggregate's newest
    /// event, unless the command names another cause.
    const IS_ONE_TRACE: bool = false;

    /// Kinds of events that the state can do without if this program cannot read them: their effect is missing, and
    /// the rest of the stream is folded. Any other unreadable event makes the aggregate reject all commands.
    const DISPENSABLE: &'static [&'static str] = &[];

    type Command: Clone + Serialize + DeserializeOwned + Send + Sync + std::fmt::Debug;
    type Event: Event + 'static;

    /// Events that follow from `command` in this state; empty when it changes nothing.
    ///
    /// # Errors
    /// A [`Rejection`] when the command is not allowed in this state or breaks a rule.
    fn decide(&self, command: Self::Command) -> Result<Vec<Self::Event>, Rejection>;

    /// Folds one event into the state. Never fails: an event has already happened.
    fn evolve(&mut self, event: Self::Event);

    /// Claims on system-wide facts (unique names, existing references) that `event` of aggregate `id` makes. They are checked
    /// and stored in the transaction that appends the event.
    fn claims(_id: Uuid, _event: &Self::Event) -> Vec<Claim> {
        Vec::new()
    }

    /// The rejection reported when the claim `op` on `kind` conflicts.
    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        Rejection::conflict("conflict", "The change contradicts another resource.")
    }
}
