//! The append-only log in PostgreSQL, the only truth of the system.
//!
//! * [`Appender`] gathers the appends of concurrent commands and commits them together; positions are gapless
//!   and in commit order.
//! * [`execute`] runs one command against one aggregate: load, decide, append, and retry on a conflict.
//! * [`read_after`] reads the log in order, for projections, relay and workers; [`search`] finds events by filters.
//! * [`verify_chain`] checks that the log is unchanged.
//!
//! It is not a bus: subscribers read the log again when [`Appender::heads`] moves.

mod append;
mod batch;
mod by_type;
mod cause;
mod chain;
mod changed;
mod claims;
mod execute;
mod index;
mod read;
mod recorded;
mod request;
mod root;
mod search;
mod slice;
mod snapshot;
mod store;
mod stream_slice;
mod upcast;

pub use append::{Appender, Heads};
pub use by_type::read_type;
pub use cause::{trace_at, trace_of_cause, trace_of_stream, traces_at};
pub use chain::{
    ChainError, Fault, Hash, Head, HeadError, SignedHead, Verification, chain_head, extend_chain,
    verify_chain,
};
pub use changed::{ChangedStream, changed_between};
pub use claims::{is_any_claimed, release_unheld};
pub use execute::{ExecuteError, Execution, execute, state};
pub use index::extend_index;
pub use read::{
    InvalidMoment, Moment, count_between, first_gap, head_position, mentions, position_before, read_after,
    read_aggregates, read_all_for, read_all_with, read_at, read_stream, read_stream_after, read_stream_from,
    read_streams, stream_keys, stream_position, stream_version, traces_between,
};
pub use recorded::{DecodeError, RecordedEvent};
pub use request::{AppendError, AppendOutcome};
pub use search::{LogFilter, LogOrder, SearchError, search};
pub use slice::{EventKey, LogSlice, UnreadableEvent};
pub use stream_slice::{StreamSlice, read_kinds, time_of, version_position};
pub use upcast::{Upcaster, upcast};
