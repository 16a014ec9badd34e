use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Reading;
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum ReadingCommand {
    /// Report a value, unless it is not newer than the last one, or follows it too soon.
    Report {
        /// The value.
        reading: Reading,
        /// The present time.
        at: DateTime<Utc>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReadingEvent {
    /// A value was reported.
    ReadingReported {
        /// The value.
        #[serde(flatten)]
        reading: Reading,
        /// Later than its arrival if other values arrived just before.
        reported_at: DateTime<Utc>,
    },
}

event_kinds!(ReadingEvent, ReadingEventKind {
    ReadingReported = "reading_reported", "1";
});
