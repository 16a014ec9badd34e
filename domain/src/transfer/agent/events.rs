use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{AgentProfile, AgentSystem, NewAgent, TransportMode};
use crate::kernel::event_kinds;

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum AgentCommand {
    /// Create the agent.
    Create(NewAgent),
    /// Replace its settings.
    Update(AgentProfile),
    /// Remove it; refused while jobs use it.
    Delete,
    /// A session was opened; it replaces an earlier one.
    Connect {
        /// Key of the session.
        session: Uuid,
        /// How it is connected.
        transport: TransportMode,
    },
    /// The agent has described its machine. Values that are missing stay as they are; `capabilities` is replaced.
    Describe(AgentSystem),
    /// Set or clear the warning that users see beside the agent.
    Warn {
        /// One sentence; `None` clears it.
        warning: Option<String>,
    },
    /// `session` has ended; ignored when another one has replaced it.
    Disconnect {
        /// Key of the session that ended.
        session: Uuid,
        /// Why, for people.
        reason: String,
    },
    /// It has been away for [`super::ABSENCE_SECONDS`]; ignored when it has connected again.
    ReportAbsence {
        /// When its session ended.
        since: DateTime<Utc>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// An agent exists now.
    AgentCreated(NewAgent),
    /// Its settings were changed.
    AgentUpdated(AgentProfile),
    /// The agent is gone.
    AgentDeleted {
        /// Its name, for readers of the log.
        name: String,
    },
    /// A session was opened.
    AgentConnected {
        /// Key of the session.
        session: Uuid,
        /// How it is connected.
        transport: TransportMode,
        /// Whether it had never connected before, or had been away for long.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        was_away: bool,
    },
    /// The machine is described differently than before.
    AgentDescribed(AgentSystem),
    /// The warning beside the agent was set or cleared.
    AgentWarningChanged {
        /// One sentence.
        warning: Option<String>,
    },
    /// The present session has ended.
    AgentDisconnected {
        /// Key of the session.
        session: Uuid,
        /// Why, for people.
        reason: String,
    },
    /// It has been without a session for [`super::ABSENCE_SECONDS`].
    AgentWentOffline {
        /// When its session ended.
        since: DateTime<Utc>,
    },
}

event_kinds!(AgentEvent, AgentEventKind {
    AgentCreated = "agent_created", "1";
    AgentUpdated = "agent_updated", "1";
    AgentDeleted = "agent_deleted", "1";
    AgentConnected = "agent_connected", "1";
    AgentDescribed = "agent_described", "1";
    AgentWarningChanged = "agent_warning_changed", "1";
    AgentDisconnected = "agent_disconnected", "1";
    AgentWentOffline = "agent_went_offline", "1";
});
