//! The append-only log in PostgreSQL, the only truth of the system.
//!
//! * [`Appender`] gathers the appends of concurrent commands and commits them together; positions are gapless
//!   and in commit order.
//! * [`execute`] runs one command against one aggregate: load, decide, append, and retry on a conflict.
//! * [`read_after`] reads the log in order, for projections, relay and workers; [`search`] finds what people ask for.
//! * [`verify_chain`] tells whether the log is as it was.
//!
//! It is not a bus: whoever wants to know of new events reads the log again when [`Appender::heads`] moves.

mod append;
mod batch;
mod cause;
mod chain;
mod execute;
mod index;
mod life;
mod read;
mod recorded;
mod root;
mod search;
mod snapshot;
mod store;
mod upcast;

pub use append::{AppendError, AppendOutcome, Appender, Heads};
pub use cause::{trace_at, trace_of_cause, trace_of_stream, traces_at};
pub use chain::{
    ChainError, Fault, Hash, Head, HeadError, SignedHead, Verification, chain_head, extend_chain,
    verify_chain,
};
pub use execute::{ExecuteError, Execution, execute};
pub use index::extend_index;
pub use life::{Life, read_kinds, time_of, version_position};
pub use read::{
    InvalidMoment, Moment, count_between, head_position, mentions, position_before, read_after, read_all_for,
    read_all_with, read_at, read_stream, read_stream_after, read_streams, read_wanted, stream_position,
    traces_between,
};
pub use recorded::{DecodeError, RecordedEvent};
pub use search::{LogFilter, LogOrder, SearchError, search};
pub use upcast::{Upcaster, upcast};
