use serde::{Deserialize, Serialize};

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
    /// One sentence for users: what happened, why, what to do.
    pub message: String,
}

const UNREADABLE_HISTORY: &str = "unreadable_history";

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

    /// A rejection of `kind` with its stable `code`.
    pub fn new(kind: ErrorKind, code: &str, message: impl Into<String>) -> Self {
        Self { kind, code: code.to_owned(), message: message.into() }
    }

    /// A value breaks a rule.
    pub fn invalid(code: &str, message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, code, message)
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
