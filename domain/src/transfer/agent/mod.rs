mod events;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use self::events::{AgentCommand, AgentEvent, AgentEventKind};
use crate::kernel::{AgentId, Claim, ClaimOp, Decider, Rejection, clean_text, required_text};

/// Longest name, in characters.
pub const MAX_NAME: usize = 255;
/// Seconds without a session after which an agent counts as offline for webhooks.
pub const ABSENCE_SECONDS: i64 = 60;
/// Longest description of an agent, a token or a job, in characters.
pub const MAX_DESCRIPTION: usize = 2000;

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

/// Whether an agent can be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentStatus {
    /// It has a session.
    Online,
    /// It has none.
    Offline,
    /// It has reported an error.
    Error,
}

/// The settings of an agent that users choose.
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

/// An agent's description of its machine.
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

impl AgentSystem {
    /// This description, completed with the values of `known`.
    fn completed_by(self, known: &Self) -> Self {
        Self {
            version: self.version.or_else(|| known.version.clone()),
            hostname: self.hostname.or_else(|| known.hostname.clone()),
            system: self.system.or_else(|| known.system.clone()),
            ip_address: self.ip_address.or_else(|| known.ip_address.clone()),
            capabilities: self.capabilities,
        }
    }
}

/// A machine that holds files.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Agent {
    profile: Option<AgentProfile>,
    system: AgentSystem,
    session: Option<Uuid>,
    #[serde(default)]
    warning: Option<String>,
    /// Whether it has connected, and was not away for long since.
    #[serde(default)]
    is_online: bool,
}

/// A new agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewAgent {
    /// The integer that clients see; drawn by the command handler.
    #[serde(default)]
    pub number: i64,
    #[serde(flatten)]
    pub profile: AgentProfile,
}

pub(super) const AGENT_CLAIM: &str = "agent";

/// The rejection for references to an agent that does not exist.
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
    const STATE_VERSION: i32 = 2;
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
                Ok(vec![AgentEvent::AgentConnected { session, transport, was_away: !self.is_online }])
            }
            AgentCommand::Describe(system) => {
                let system = system.completed_by(&self.system);
                Ok(if system == self.system { Vec::new() } else { vec![AgentEvent::AgentDescribed(system)] })
            }
            AgentCommand::Warn { warning } if warning == self.warning => Ok(Vec::new()),
            AgentCommand::Warn { warning } => Ok(vec![AgentEvent::AgentWarningChanged { warning }]),
            // A late end of an old session must never unregister the new one.
            AgentCommand::Disconnect { session, .. } if self.session != Some(session) => Ok(Vec::new()),
            AgentCommand::Disconnect { session, reason } => {
                Ok(vec![AgentEvent::AgentDisconnected { session, reason }])
            }
            AgentCommand::ReportAbsence { since } if self.is_online && self.session.is_none() => {
                Ok(vec![AgentEvent::AgentWentOffline { since }])
            }
            AgentCommand::ReportAbsence { .. } => Ok(Vec::new()),
        }
    }

    fn evolve(&mut self, event: AgentEvent) {
        match event {
            AgentEvent::AgentCreated(new) => self.profile = Some(new.profile),
            AgentEvent::AgentUpdated(profile) => self.profile = Some(profile),
            AgentEvent::AgentDeleted { .. } => *self = Self::default(),
            AgentEvent::AgentConnected { session, .. } => {
                (self.session, self.is_online) = (Some(session), true)
            }
            AgentEvent::AgentDescribed(system) => self.system = system,
            AgentEvent::AgentWarningChanged { warning } => self.warning = warning,
            AgentEvent::AgentDisconnected { .. } => self.session = None,
            AgentEvent::AgentWentOffline { .. } => self.is_online = false,
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
        name: required_text("name", &profile.name, MAX_NAME)?,
        description: optional_text("description", profile.description)?,
        kind: profile.kind,
    })
}

/// `text` trimmed; empty text becomes `None`.
pub(super) fn optional_text(field: &str, text: Option<String>) -> Result<Option<String>, Rejection> {
    let Some(text) = text else { return Ok(None) };
    let text = clean_text(&text, MAX_DESCRIPTION).map_err(|error| Rejection::field(field, error))?;
    Ok((!text.is_empty()).then_some(text))
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

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
            connect(&mut agent, session);
        }
        let late = AgentCommand::Disconnect { session: old, reason: "closed".into() };
        assert_eq!(agent.decide(late).unwrap(), vec![]);
    }

    /// Whether it had been away.
    fn connect(agent: &mut Agent, session: Uuid) -> bool {
        let events = agent.decide(AgentCommand::Connect { session, transport: TransportMode::Websocket });
        let events = events.unwrap();
        let [AgentEvent::AgentConnected { was_away, .. }] = events.as_slice() else { panic!("{events:?}") };
        let was_away = *was_away;
        events.into_iter().for_each(|event| agent.evolve(event));
        was_away
    }

    #[test]
    fn an_absence_is_reported_once_and_ends_with_a_session() {
        let [one, two, three] = [1, 2, 3].map(Uuid::from_u128);
        let since = DateTime::UNIX_EPOCH;
        let run = |agent: &mut Agent, command: AgentCommand| {
            let events = agent.decide(command).unwrap();
            events.iter().for_each(|event| agent.evolve(event.clone()));
            events.len()
        };
        let disconnect = |session| AgentCommand::Disconnect { session, reason: "closed".into() };
        let absence = || AgentCommand::ReportAbsence { since };
        let mut agent = agent();
        assert_eq!(run(&mut agent, absence()), 0, "it was never there");
        assert!(connect(&mut agent, one));
        assert_eq!(run(&mut agent, absence()), 0, "it is connected");
        run(&mut agent, disconnect(one));
        assert!(!connect(&mut agent, two), "it was away for a moment");
        run(&mut agent, disconnect(two));
        assert_eq!([run(&mut agent, absence()), run(&mut agent, absence())], [1, 0]);
        assert!(connect(&mut agent, three));
    }

    #[test]
    fn an_empty_description_erases_no_value() {
        let mut agent = agent();
        let known = AgentSystem {
            hostname: Some("press".into()),
            capabilities: vec!["ack".into()],
            ..Default::default()
        };
        agent.evolve(AgentEvent::AgentDescribed(known.clone()));
        let empty = AgentSystem { capabilities: known.capabilities.clone(), ..Default::default() };
        assert_eq!(agent.decide(AgentCommand::Describe(empty)).unwrap(), vec![]);
        // The protocol is agreed again with each description.
        let plain = AgentCommand::Describe(AgentSystem::default());
        let described = AgentSystem { capabilities: Vec::new(), ..known };
        assert_eq!(agent.decide(plain).unwrap(), vec![AgentEvent::AgentDescribed(described)]);
    }

    #[test]
    fn a_warning_is_recorded_when_it_changes() {
        let mut agent = agent();
        let warn = |text: Option<&str>| AgentCommand::Warn { warning: text.map(str::to_owned) };
        assert_eq!(agent.decide(warn(None)).unwrap(), vec![]);
        let events = agent.decide(warn(Some("two"))).unwrap();
        assert_eq!(events.len(), 1);
        events.into_iter().for_each(|event| agent.evolve(event));
        assert_eq!(agent.decide(warn(Some("two"))).unwrap(), vec![]);
        assert_eq!(agent.decide(warn(None)).unwrap().len(), 1);
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
