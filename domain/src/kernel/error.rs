use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::FieldPointer;

/// How a rejected command is to be understood by the caller; each kind maps to one HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A value breaks a rule.
    Invalid,
    /// The aggregate does not exist (or no longer).
    NotFound,
    /// The state does not allow the command.
    Conflict,
    /// The caller's expected version is not the present one.
    PreconditionFailed,
    /// The service cannot take the command now; the same command may be sent again.
    Unavailable,
}

/// A command that was not carried out, and why. Nothing has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Rejection {
    /// How to understand it.
    pub kind: ErrorKind,
    /// Stable word for programs, snake_case.
    pub code: String,
    /// One sentence for users: problem, cause and remedy.
    pub message: String,
    /// The field of the request that is at fault, if it is one. Command handlers of older releases do not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<FieldPointer>,
}

const UNREADABLE_HISTORY: &str = "unreadable_history";
const NEWER_HISTORY: &str = "newer_history";
const DATABASE_FULL: &str = "database_full";
const UNREADABLE_COMMAND: &str = "unreadable_command";
const UNKNOWN_AGGREGATE: &str = "unknown_aggregate";

impl Rejection {
    /// The history of the aggregate cannot be read.
    pub fn unreadable_history() -> Self {
        let message = "The history of this resource cannot be read by this version of the service.";
        Self::new(ErrorKind::Conflict, UNREADABLE_HISTORY, message)
    }

    /// Whether the history of the aggregate cannot be read, so that it refuses every command.
    pub fn is_unreadable_history(&self) -> bool {
        self.code == UNREADABLE_HISTORY
    }

    /// The history of the aggregate has an event that only a newer release knows.
    pub fn newer_history() -> Self {
        let message = "A newer release has changed this resource, and the process that answers is older: try again when all processes \
                       of the service have been upgraded.";
        Self::new(ErrorKind::Unavailable, NEWER_HISTORY, message)
    }

    /// Whether the handler does not know an event of the history, as one of an older release; one of another release may.
    pub fn is_newer_history(&self) -> bool {
        self.code == NEWER_HISTORY
    }

    /// The database has no space for events.
    pub fn database_full() -> Self {
        let message = "The disk of the database is full: free some space and try again.";
        Self::new(ErrorKind::Unavailable, DATABASE_FULL, message)
    }

    /// Whether the database has no space for events, so that the command can be carried out once it has some.
    pub fn is_database_full(&self) -> bool {
        self.code == DATABASE_FULL
    }

    /// The handler cannot read the command.
    pub fn unreadable_command() -> Self {
        Self::invalid(UNREADABLE_COMMAND, "The command cannot be read.")
    }

    /// The handler does not know the aggregate that the command is for.
    pub fn unknown_aggregate() -> Self {
        Self::invalid(UNKNOWN_AGGREGATE, "The command is not known.")
    }

    /// Whether the handler does not know the command, as one of an older release; one of another release may.
    pub fn is_unknown_command(&self) -> bool {
        [UNREADABLE_COMMAND, UNKNOWN_AGGREGATE].contains(&self.code.as_str())
    }

    /// A rejection of `kind` with its stable `code`.
    pub fn new(kind: ErrorKind, code: &str, message: impl Into<String>) -> Self {
        Self { kind, code: code.to_owned(), message: message.into(), pointer: None }
    }

    /// A value breaks a rule.
    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, code, message)
    }

    /// The value of `field` breaks a rule; `fault` is the rest of the sentence after its name. A field within a field is
    /// written with a dot.
    pub fn field(field: &str, fault: impl Display) -> Self {
        Self::invalid("invalid_field", format!("{field} {fault}")).about(field)
    }

    /// The same, caused by `field` of the request.
    #[must_use]
    pub fn about(self, field: &str) -> Self {
        Self { pointer: Some(FieldPointer::to(field)), ..self }
    }

    /// `what` does not exist.
    pub fn not_found(what: &str) -> Self {
        Self::new(ErrorKind::NotFound, "not_found", format!("{what} not found"))
    }

    /// The state does not allow the command.
    pub fn conflict(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, code, message)
    }

    /// The service cannot take the command now.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, "unavailable", message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rejections_of_an_older_release_are_read() {
        let old = json!({"kind": "invalid", "code": "invalid_field", "message": "name must not be empty"});
        let read: Rejection = serde_json::from_value(old.clone()).unwrap();
        assert_eq!(read.pointer, None);
        assert_eq!(serde_json::to_value(&read).unwrap(), old);
    }

    #[test]
    fn a_rejection_carries_its_field() {
        let rejection = Rejection::field("retry.max_attempts", "must be between 1 and 10");
        let sent = serde_json::to_value(&rejection).unwrap();
        assert_eq!(sent["pointer"], "/retry/max_attempts");
        assert_eq!(sent["message"], "retry.max_attempts must be between 1 and 10");
        assert_eq!(serde_json::from_value::<Rejection>(sent).unwrap(), rejection);
    }
}
