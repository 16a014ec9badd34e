//! Queries on the log itself: aggregates at a point in time, causal traces, and events with redacted secrets.

mod causal_trace;
mod history;
pub(crate) mod past;
mod redact;
mod state;

pub use causal_trace::{CausalTrace, Outcome, TracedDelivery, TracedEvent, causal_trace};
pub use history::{Kept, Version, history, place_of};
pub use past::{At, AtError, Past, Resource, past};
pub use redact::redact;
pub use state::{StateError, StreamState, stream_state};
