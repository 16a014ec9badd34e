//! The log itself as people read it: what an aggregate was at a moment, and events without what nobody may see.

mod redact;
mod state;

pub use redact::redact;
pub use state::{StateError, StreamState, stream_state};
