use cqrs_es::DomainEvent;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::kernel::{AgentId, Claim, ClaimOp, Decider, Rejection, clean_text, required_text};

/// Kind of machine; informative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentType {
    /// A server.
    #[default]
    Server,
    /// A workstation or device.
    Client,
}

/// How an agent is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportMode {
    /// A WebSocket.
    Websocket,
    /// Long polling.
    Polling,
}

/// What people say about an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentProfile {
    /// Display name, 1–255 characters.
    pub name: String,
    /// Kind of machine.
    #[serde(rename = "agent_type")]
    pub kind: AgentType,
    /// Free text, up to 2,000 characters.
    pub description: Option<String>,
}

/// What an agent says about its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentSystem {
    /// Version of the agent program.
    pub version: Option<String>,
    /// Name of the machine.
    pub hostname: Option<String>,
    /// Operating system.
    pub system: Option<String>,
    /// Address of the machine as seen by the agent, or else by the gateway.
    pub ip_address: Option<String>,
    /// Protocol extensions that the agent understands.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// A machine that holds files.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Agent {
    profile: Option<AgentProfile>,
    system: AgentSystem,
    session: Option<Uuid>,
}

/// A new agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAgent {
    /// The integer that clients see; drawn by the command handler.
    #[serde(default)]
    pub number: i64,
    /// What people say about it.
    #[serde(flatten)]
    pub profile: AgentProfile,
}

/// What can be asked of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum AgentCommand {
    /// Create the agent.
    Create(NewAgent),
    /// Replace what people say about it.
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
    /// The agent has described its machine.
    Describe(AgentSystem),
    /// `session` has ended; ignored when another one has replaced it.
    Disconnect {
        /// Key of the session that ended.
        session: Uuid,
        /// Why, for people.
        reason: String,
    },
}

/// What can have happened to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AgentEvent {
    /// An agent exists now.
    AgentCreated(NewAgent),
    /// People say something else about it.
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
    },
    /// The machine is described differently than before.
    AgentDescribed(AgentSystem),
    /// The present session has ended.
    AgentDisconnected {
        /// Key of the session.
        session: Uuid,
        /// Why, for people.
        reason: String,
    },
}

impl DomainEvent for AgentEvent {
    fn event_type(&self) -> String {
        match self {
            Self::AgentCreated(_) => "agent_created",
            Self::AgentUpdated(_) => "agent_updated",
            Self::AgentDeleted { .. } => "agent_deleted",
            Self::AgentConnected { .. } => "agent_connected",
            Self::AgentDescribed(_) => "agent_described",
            Self::AgentDisconnected { .. } => "agent_disconnected",
        }
        .to_owned()
    }

    fn event_version(&self) -> String {
        "1".to_owned()
    }
}

pub(super) const AGENT_CLAIM: &str = "agent";

/// What others are told that refer to an agent which is not there.
pub(super) fn unknown_agent() -> Rejection {
    Rejection::invalid("unknown_agent", "The agent does not exist.")
}

/// Name space of the claims that jobs hold on the agent they use.
pub(super) fn jobs_of_agent(agent: AgentId) -> String {
    format!("agent.jobs:{agent}")
}

impl Decider for Agent {
    const TYPE: &'static str = "agent";
    const CONTEXT: &'static str = "transfer";
    const STATE_VERSION: i32 = 1;
    type Command = AgentCommand;
    type Event = AgentEvent;

    fn decide(&self, command: AgentCommand) -> Result<Vec<AgentEvent>, Rejection> {
        if let AgentCommand::Create(new) = command {
            return self.create(new);
        }
        let profile = self.profile.as_ref().ok_or_else(|| Rejection::not_found("Agent"))?;
        match command {
            AgentCommand::Create(_) => Ok(Vec::new()),
            AgentCommand::Update(to) => {
                let to = valid_profile(to)?;
                Ok(if to == *profile { Vec::new() } else { vec![AgentEvent::AgentUpdated(to)] })
            }
            AgentCommand::Delete => Ok(vec![AgentEvent::AgentDeleted { name: profile.name.clone() }]),
            AgentCommand::Connect { session, .. } if self.session == Some(session) => Ok(Vec::new()),
            AgentCommand::Connect { session, transport } => {
                Ok(vec![AgentEvent::AgentConnected { session, transport }])
            }
            AgentCommand::Describe(system) => {
                Ok(if system == self.system { Vec::new() } else { vec![AgentEvent::AgentDescribed(system)] })
            }
            // A late end of an old session must never unregister the new one.
            AgentCommand::Disconnect { session, .. } if self.session != Some(session) => Ok(Vec::new()),
            AgentCommand::Disconnect { session, reason } => {
                Ok(vec![AgentEvent::AgentDisconnected { session, reason }])
            }
        }
    }

    fn evolve(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::AgentCreated(new) => self.profile = Some(new.profile),
            AgentEvent::AgentUpdated(profile) => self.profile = Some(profile),
            AgentEvent::AgentDeleted { .. } => *self = Self::default(),
            AgentEvent::AgentConnected { session, .. } => self.session = Some(session),
            AgentEvent::AgentDescribed(system) => self.system = system,
            AgentEvent::AgentDisconnected { .. } => self.session = None,
        }
    }

    fn claim_rejection(_op: ClaimOp, _kind: &str) -> Rejection {
        Rejection::conflict("agent_in_use", "Jobs use this agent.")
    }

    fn claims(id: Uuid, event: &AgentEvent) -> Vec<Claim> {
        match event {
            AgentEvent::AgentCreated(_) => vec![Claim::new(ClaimOp::Take, AGENT_CLAIM, id.to_string())],
            AgentEvent::AgentDeleted { .. } => vec![
                Claim::new(ClaimOp::RequireNone, jobs_of_agent(AgentId(id)), ""),
                Claim::new(ClaimOp::Release, AGENT_CLAIM, id.to_string()),
            ],
            _ => Vec::new(),
        }
    }
}

impl Agent {
    fn create(&self, new: NewAgent) -> Result<Vec<AgentEvent>, Rejection> {
        if self.profile.is_some() {
            return Err(Rejection::conflict("agent_exists", "This agent exists already."));
        }
        let profile = valid_profile(new.profile)?;
        Ok(vec![AgentEvent::AgentCreated(NewAgent { profile, ..new })])
    }
}

fn valid_profile(profile: AgentProfile) -> Result<AgentProfile, Rejection> {
    Ok(AgentProfile {
        name: required_text("name", &profile.name, 255)?,
        description: optional_text("description", profile.description)?,
        kind: profile.kind,
    })
}

/// `text` cleaned; empty means none.
pub(super) fn optional_text(field: &str, text: Option<String>) -> Result<Option<String>, Rejection> {
    let Some(text) = text else { return Ok(None) };
    let text = clean_text(&text, 2000)
        .map_err(|error| Rejection::invalid("invalid_field", format!("{field} {error}")))?;
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent() -> Agent {
        let mut agent = Agent::default();
        let profile = AgentProfile { name: "press".into(), ..Default::default() };
        agent.evolve(AgentEvent::AgentCreated(NewAgent { number: 1, profile }));
        agent
    }

    #[test]
    fn the_end_of_an_old_session_leaves_the_new_one() {
        let (old, new) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut agent = agent();
        for session in [old, new] {
            agent.evolve(AgentEvent::AgentConnected { session, transport: TransportMode::Websocket });
        }
        let late = AgentCommand::Disconnect { session: old, reason: "closed".into() };
        assert_eq!(agent.decide(late).unwrap(), vec![]);
    }

    #[test]
    fn a_deleted_agent_is_not_found() {
        let mut agent = agent();
        agent.evolve(AgentEvent::AgentDeleted { name: "press".into() });
        assert!(agent.decide(AgentCommand::Delete).is_err());
    }

    #[test]
    fn names_are_required_and_bounded() {
        for name in ["", "  ", "a\0b", &"x".repeat(256)] {
            let profile = AgentProfile { name: name.into(), ..Default::default() };
            assert!(agent().decide(AgentCommand::Update(profile)).is_err(), "{name:?}");
        }
    }
}
