use serde::{Deserialize, Serialize};

use super::{LogStatus, NewLogEntry};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum LogEntryCommand {
    /// Write it.
    Write(NewLogEntry),
    /// Change the fields that are present.
    Change {
        /// Whether it has been read.
        status: Option<LogStatus>,
        /// Another sentence.
        content: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LogEntryEvent {
    /// The entry was written.
    LogEntryWritten(NewLogEntry),
    /// Marked as read or unread.
    LogEntryMarked { status: LogStatus },
    /// The text was changed.
    LogEntryEdited {
        /// Before.
        from: String,
        /// Now.
        to: String,
    },
}

event_kinds!(LogEntryEvent, LogEntryEventKind {
    LogEntryWritten = "log_entry_written", "1";
    LogEntryMarked = "log_entry_marked", "1";
    LogEntryEdited = "log_entry_edited", "1";
});
