use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::kernel::{UserId, event_kinds};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum SessionCommand {
    /// A user has logged in.
    Start {
        user: UserId,
        /// When the first JWT expires.
        expires_at: DateTime<Utc>,
    },
    /// A new JWT is given out.
    Renew {
        /// When it expires.
        expires_at: DateTime<Utc>,
    },
    /// Log out.
    End,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionEvent {
    /// A user has logged in.
    SessionStarted {
        user: UserId,
        /// When the first JWT expires.
        expires_at: DateTime<Utc>,
    },
    /// A new JWT was given out.
    SessionRenewed {
        /// When it expires.
        expires_at: DateTime<Utc>,
    },
    /// Logged out; all JWTs of the session are void.
    SessionEnded,
}

event_kinds!(SessionEvent, SessionEventKind {
    SessionStarted = "session_started", "1";
    SessionRenewed = "session_renewed", "1";
    SessionEnded = "session_ended", "1";
});
