//! The log itself as people read it: what an aggregate was at a moment, what one cause led to, and events without what nobody
//! may see.

mod history;
pub(crate) mod past;
mod redact;
mod state;
mod story;

pub use history::{Kept, Version, history, place_of};
pub use past::{At, AtError, Past, Resource, past};
pub use redact::redact;
pub use state::{StateError, StreamState, stream_state};
pub use story::{Chapter, Outcome, Story, ToldDelivery, story};
