mod events;

use serde::{Deserialize, Serialize};

pub use self::events::{LogEntryCommand, LogEntryEvent, LogEntryEventKind};
use crate::kernel::{Decider, Rejection, UserId, required_text};

/// Longest content, in characters.
pub const MAX_CONTENT: usize = 500;
/// Longest source, in characters.
pub const MAX_SOURCE: usize = 100;

/// How bad it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogType {
    /// Something failed.
    Error,
    /// A possible or impending failure.
    Warning,
    /// Something happened.
    #[default]
    Info,
}

/// Whether the entry has been read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogStatus {
    Read,
    #[default]
    Unread,
}

impl LogType {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

impl LogStatus {
    /// The word that clients see.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Unread => "unread",
        }
    }
}

/// A message for the plant's operators.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct LogEntry {
    present: Option<Present>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Present {
    status: LogStatus,
    content: String,
}

/// A new, unread entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewLogEntry {
    /// How bad it is.
    #[serde(rename = "log_type")]
    pub kind: LogType,
    /// The sentence, 1–500 characters.
    pub content: String,
    /// The reporting component, 1–100 characters, e.g. `auth`.
    pub source: String,
    /// The user concerned, or the author.
    pub user: Option<UserId>,
}

impl Decider for LogEntry {
    const TYPE: &'static str = "log_entry";
    const CONTEXT: &'static str = "monitoring";
    const STATE_VERSION: i32 = 1;
    type Command = LogEntryCommand;
    type Event = LogEntryEvent;

    fn decide(&self, command: LogEntryCommand) -> Result<Vec<LogEntryEvent>, Rejection> {
        match (command, &self.present) {
            (LogEntryCommand::Write(_), Some(_)) => {
                Err(Rejection::conflict("log_entry_exists", "This entry exists already."))
            }
            (LogEntryCommand::Write(new), None) => {
                let content = required_text("content", &new.content, MAX_CONTENT)?;
                let source = required_text("source", &new.source, MAX_SOURCE)?;
                Ok(vec![LogEntryEvent::LogEntryWritten(NewLogEntry { content, source, ..new })])
            }
            (LogEntryCommand::Change { .. }, None) => Err(Rejection::not_found("Log entry")),
            (LogEntryCommand::Change { status, content }, Some(present)) => {
                let to = content.map(|text| required_text("content", &text, MAX_CONTENT)).transpose()?;
                let edited = to
                    .filter(|to| *to != present.content)
                    .map(|to| LogEntryEvent::LogEntryEdited { from: present.content.clone(), to });
                let marked = status
                    .filter(|status| *status != present.status)
                    .map(|status| LogEntryEvent::LogEntryMarked { status });
                Ok(edited.into_iter().chain(marked).collect())
            }
        }
    }

    fn evolve(&mut self, event: LogEntryEvent) {
        match (event, &mut self.present) {
            (LogEntryEvent::LogEntryWritten(new), present) => {
                *present = Some(Present { status: LogStatus::Unread, content: new.content });
            }
            (LogEntryEvent::LogEntryMarked { status }, Some(present)) => present.status = status,
            (LogEntryEvent::LogEntryEdited { to, .. }, Some(present)) => present.content = to,
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(content: &str, source: &str) -> NewLogEntry {
        NewLogEntry {
            kind: LogType::Warning,
            content: content.to_owned(),
            source: source.to_owned(),
            user: None,
        }
    }

    fn written() -> LogEntry {
        let mut entry = LogEntry::default();
        entry.evolve(LogEntryEvent::LogEntryWritten(new("too hot", "boiler")));
        entry
    }

    #[test]
    fn texts_are_trimmed_required_and_bounded() {
        let write = |new| LogEntry::default().decide(LogEntryCommand::Write(new));
        let expected = LogEntryEvent::LogEntryWritten(new("too hot", "boiler"));
        assert_eq!(write(new(" too hot\n", " boiler ")), Ok(vec![expected]));
        assert!(write(new(&"ä".repeat(500), &"ä".repeat(100))).is_ok());
        let wrong = [
            new("", "boiler"),
            new(" ", "boiler"),
            new("a\0b", "boiler"),
            new(&"ä".repeat(501), "boiler"),
            new("too hot", ""),
            new("too hot", "a\0b"),
            new("too hot", &"ä".repeat(101)),
        ];
        for wrong in wrong {
            assert!(write(wrong.clone()).is_err(), "{wrong:?}");
        }
        let edit = |text: &str| {
            written().decide(LogEntryCommand::Change { status: None, content: Some(text.to_owned()) })
        };
        assert!(edit("").is_err() && edit(&"x".repeat(501)).is_err());
    }

    #[test]
    fn only_what_changes_is_an_event() {
        let change = |status, content: Option<&str>| {
            written().decide(LogEntryCommand::Change { status, content: content.map(str::to_owned) }).unwrap()
        };
        assert_eq!(change(Some(LogStatus::Unread), Some("too hot")), vec![]);
        assert_eq!(change(None, None), vec![]);
        assert_eq!(change(Some(LogStatus::Read), Some("far too hot")).len(), 2);
    }

    #[test]
    fn an_entry_may_be_marked_to_be_read_again() {
        let mut entry = written();
        for status in [LogStatus::Read, LogStatus::Unread] {
            let marked =
                entry.decide(LogEntryCommand::Change { status: Some(status), content: None }).unwrap();
            assert_eq!(marked, vec![LogEntryEvent::LogEntryMarked { status }]);
            marked.into_iter().for_each(|event| entry.evolve(event));
        }
    }

    #[test]
    fn what_was_never_written_is_not_found() {
        let change = LogEntryCommand::Change { status: Some(LogStatus::Read), content: None };
        assert!(LogEntry::default().decide(change).is_err());
    }
}
