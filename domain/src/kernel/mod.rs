//! Code that every context shares: the aggregate trait, ids, actors, claims and the error kinds.

mod actor;
mod claim;
mod decider;
mod error;
mod event;
mod field;
mod ids;
mod metadata;
mod patch;
mod sha256;
mod text;
mod time;
mod version;

pub use actor::Actor;
pub use claim::{Claim, ClaimOp};
pub use decider::Decider;
pub use error::{ErrorKind, Rejection};
pub(crate) use event::event_kinds;
pub use event::{Event, EventKind, KindOf, words_of};
pub use field::FieldPointer;
pub use ids::{
    AgentId, AgentTokenId, AlarmId, ChannelId, ContactId, DeliveryId, ExtractionJobId, FirmwareUpdateId,
    JobId, MappingId, RuleId, SessionId, TransferId, UserId, WebhookId, WidgetId,
};
pub use metadata::{CommandOutcome, Metadata};
pub use patch::present;
pub use sha256::{InvalidSha256, Sha256Hex};
pub use text::{TextError, clean_text, non_empty_text, required_text};
pub use time::{is_in_range, optional_time, parse_time, time};
pub use version::{InvalidVersion, MAX_LENGTH as VERSION_LENGTH, ReleaseVersion};
